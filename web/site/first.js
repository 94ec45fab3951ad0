// Runs before the first paint: the colours that were chosen, and whether the map is what is
// asked for, so that nothing else flashes by.
(() => {
  const root = document.documentElement;
  try {
    const theme = localStorage.getItem("kvasir-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch { /* no storage: the system's colours */ }
  if (!/^#?\/?$/.test(location.hash)) root.dataset.elsewhere = "";
})();
