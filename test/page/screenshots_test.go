package page

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"kvasir/test/program"
)

const (
	mostImage  = 250_000   // bytes of one screenshot
	mostImages = 8_000_000 // and of all
	tallest    = 4000      // pixels; what is below is cut
)

// make screenshots names the folder of the pictures: then they are taken anew.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("KVASIR_SCREENSHOTS")
	if dir == "" {
		t.Skip("make screenshots takes them")
	}
	program.Installed(t, "page")
	base, token := busyDemo(t)
	views := map[string]string{"map": "#/", "labs": "#/labs", "live": "#/live"}
	for _, l := range labs(t) {
		views["lab-"+l.Name] = "#/labs/" + l.Name
	}
	// The live system needs its minute of traffic, and a policy beside the one that decides.
	live := open(t, desktop, base+"#/live")
	live.typeInto("input[name=token]", token)
	eval[any](live, "(() => {const s = document.querySelector('select[name=shadow]'); s.value = 'least-outstanding'; s.dispatchEvent(new Event('change'));})()")
	sum := 0
	for _, name := range slices.Sorted(maps.Keys(views)) {
		for _, scheme := range []string{"light", "dark"} {
			l := desktop
			l.dark = scheme == "dark"
			b := open(t, l, base+views[name])
			if name == "live" {
				b.until("the minute is full", "/ 6\\d s/.test(document.querySelector('.status').textContent)")
				b.until("decisions have come", "document.querySelectorAll('ol.decisions li').length >= 8")
			}
			b.settled()
			picture := b.picture()
			sum += len(picture)
			t.Logf("%s-%s.png: %d bytes", name, scheme, len(picture))
			if len(picture) > mostImage {
				t.Errorf("%s-%s.png has %d bytes, allowed: %d", name, scheme, len(picture), mostImage)
			}
			if err := os.WriteFile(filepath.Join(dir, name+"-"+scheme+".png"), picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("all: %d bytes", sum)
	if sum > mostImages {
		t.Errorf("the pictures have %d bytes, allowed: %d", sum, mostImages)
	}
}

// picture takes the whole page, in a palette.
func (b *tab) picture() []byte {
	b.t.Helper()
	height := min(tallest, eval[int64](b, "Math.ceil(document.documentElement.scrollHeight)"))
	width := eval[int64](b, "innerWidth")
	b.do(chromedp.EmulateViewport(width, max(desktop.height, height))) // so that nothing is stuck in the middle
	b.settled()
	var shot []byte
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		r, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{})
		shot = r.Data
		return err
	}))
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, inPalette(full)); err != nil {
		b.t.Fatal(err)
	}
	return out.Bytes()
}

// mostColours is how many a picture has: enough for the edges of letters beside those of the page.
const mostColours = 64

// inPalette returns the picture with few colours: the most frequent ones that differ from each
// other, which keeps flat areas as they are.
func inPalette(full image.Image) *image.Paletted {
	r := full.Bounds()
	counts := map[color.RGBA]int{}
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			counts[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		if c := cmp.Compare(counts[b], counts[a]); c != 0 {
			return c
		}
		return cmp.Compare(key(a), key(b))
	})
	var palette color.Palette
	for _, least := range []int{9, 0} { // apart at first, then what is left
		for _, c := range frequent {
			if len(palette) < mostColours && (len(palette) == 0 || apart(c, palette[palette.Index(c)].(color.RGBA)) > least) {
				palette = append(palette, c)
			}
		}
	}
	index := map[color.RGBA]uint8{}
	for c := range counts {
		index[c] = uint8(palette.Index(c))
	}
	out := image.NewPaletted(r, palette)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			out.SetColorIndex(x, y, index[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)])
		}
	}
	return out
}

func key(c color.RGBA) int { return int(c.R)<<16 | int(c.G)<<8 | int(c.B) }

func apart(a, b color.RGBA) int {
	d := func(x, y uint8) int { return max(int(x)-int(y), int(y)-int(x)) }
	return max(d(a.R, b.R), d(a.G, b.G), d(a.B, b.B))
}
