package discovery

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// look has a reader look once, and checks what it says.
func look(t *testing.T, r *reader, err string, urls ...string) {
	t.Helper()
	endpoints, got := r.look()
	wantURLs(t, told{endpoints: endpoints, err: got}, urls...)
	wantError(t, got, err)
}

func readerOf(t *testing.T, path string) *reader {
	t.Helper()
	s, err := NewFile(File{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return &reader{file: s.(*file)}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFile_WhenItChanges_TakesItOnceItHasSettled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool")
	r := readerOf(t, path)
	look(t, r, "no such file")
	if r.endpoints != nil {
		t.Error("a file that isn't there gives a list")
	}
	write(t, path, "http://a:80") // the half of http://a:8000
	look(t, r, "")
	write(t, path, "http://a:8000\nhttp://b:80")
	look(t, r, "")
	write(t, path, "http://a:8000\nhttp://b:8000\n")
	look(t, r, "")
	look(t, r, "", "http://a:8000", "http://b:8000")

	write(t, path, "[]")
	look(t, r, "", "http://a:8000", "http://b:8000")
	look(t, r, "")
	if r.endpoints == nil {
		t.Error("a list of none is unknown")
	}
}

func TestFile_WhenItIsThereAtTheStart_TakesItAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool")
	write(t, path, "http://a\n")
	look(t, readerOf(t, path), "", "http://a")
}

func TestFile_WhenItCanNotBeUsed_KeepsTheLastGood(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "pool")
	write(t, path, "http://a\n")
	r := readerOf(t, path)
	look(t, r, "", "http://a")

	write(t, path, "http://a\nhttp://b:x\n")
	look(t, r, "", "http://a")
	look(t, r, path+": line 2: url: ", "http://a")
	look(t, r, "line 2", "http://a") // again, though it isn't parsed again

	write(t, path, "")
	look(t, r, "line 2", "http://a")
	look(t, r, "line 1: no endpoint", "http://a")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	look(t, r, "no such file", "http://a")

	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	look(t, r, "not a regular file", "http://a")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	look(t, r, "not a regular file", "http://a")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	write(t, path, "http://a\n"+strings.Repeat("#", fileMost))
	look(t, r, "longer than 1048576 bytes", "http://a")
	write(t, path, "http://b\n"+strings.Repeat("#", fileMost-len("http://b\n")))
	look(t, r, "line 1: no endpoint", "http://a") // what is known of the last file that could be read
	look(t, r, "", "http://b")
}

// TestFile_WhenKubernetesSwapsTheFolder_FollowsIt has the links of a mounted ConfigMap:
// pool -> ..data/pool, ..data -> a folder with the time in its name.
func TestFile_WhenKubernetesSwapsTheFolder_FollowsIt(t *testing.T) {
	mount := t.TempDir()
	version := func(name, content string) {
		if err := os.Mkdir(filepath.Join(mount, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(mount, name, "pool"), content)
		tmp := filepath.Join(mount, "..data_tmp")
		if err := os.Symlink(name, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..2026_01", "http://a\n")
	path := filepath.Join(mount, "pool")
	if err := os.Symlink(filepath.Join("..data", "pool"), path); err != nil {
		t.Fatal(err)
	}
	r := readerOf(t, path)
	look(t, r, "", "http://a")
	version("..2026_02", "http://b\n")
	if err := os.RemoveAll(filepath.Join(mount, "..2026_01")); err != nil {
		t.Fatal(err)
	}
	look(t, r, "", "http://a")
	look(t, r, "", "http://b")
}

func TestFile_Watch_LooksEachInterval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool")
	write(t, path, "http://a\n")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s, err := NewFile(File{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var all []told
		var wg sync.WaitGroup
		wg.Go(func() {
			s.Watch(ctx, func(endpoints []Endpoint, err error) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, told{time.Since(start), endpoints, err})
			})
		})
		time.Sleep(1500 * time.Millisecond)
		write(t, path, "http://b\n")
		time.Sleep(2 * time.Second)
		cancel()
		wg.Wait()
		if len(all) != 4 || all[3].at != 3*time.Second {
			t.Fatalf("%v", all)
		}
		for i, want := range []string{"http://a", "http://a", "http://a", "http://b"} {
			wantURLs(t, all[i], want)
		}
	})
}

func TestNewFile_WhenAFieldIsWrong_NamesIt(t *testing.T) {
	for _, c := range []struct {
		f    File
		want string
	}{
		{File{}, "path: missing"},
		{File{Path: "a", Interval: -1}, "interval: -1ns"},
		{File{Path: "a", Most: -1}, "most: -1"},
	} {
		_, err := NewFile(c.f)
		wantError(t, err, c.want)
	}
}
