// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"hash/fnv"
	"math"
	"strings"
)

// flameHues are the colours of a flame graph as angles in OKLCH: there, all hues look
// equally light, so that no container shouts.
func flameHues() []float64 { return []float64{250, 62, 155, 0, 300, 95, 200, 28, 125, 335} }

// flameShades is how many tones a colour has, so that neighbours of one colour
// can be told apart.
const flameShades = 3

// tone is the lightness and the chroma of one kind of box.
type tone struct{ light, chroma float64 }

type flameTheme struct{ user, kernel, label tone }

// colourClass is the class of everything that belongs to the root number i.
// What is outside of any container is grey.
func (s *svgWriter) colourClass(i int) string {
	if s.f.roots[i].name == noContainer {
		return "host"
	}
	return fmt.Sprintf("c%d", s.hues[i])
}

// chooseHues gives each root the colour of its name, so that a container has the
// same one in every picture. Of two roots that have the same, the lighter one
// takes the next that is free.
func chooseHues(roots []string) []int {
	taken := make(map[int]bool)
	hues := make([]int, len(roots))
	for i, name := range roots {
		if name == noContainer {
			continue // it is grey
		}
		h := fnv.New32a()
		h.Write([]byte(name))
		n := int(h.Sum32() % uint32(len(flameHues())))
		for try := 0; taken[n] && try < len(flameHues()); try++ {
			n = (n + 1) % len(flameHues())
		}
		taken[n] = true
		hues[i] = n
	}
	return hues
}

func (s *svgWriter) boxClass(b *box) string {
	switch {
	case b.rest:
		return "rest"
	case b.root < 0:
		return "all"
	}
	class := s.colourClass(b.root)
	if b.label {
		return class + " label"
	}
	if b.kernel {
		class += " k"
	}
	h := fnv.New32a()
	h.Write([]byte(b.name))
	return fmt.Sprintf("%s s%d", class, h.Sum32()%flameShades)
}

// colours writes the style of each colour in use, for light and for dark.
func (s *svgWriter) colours() string {
	light := flameTheme{user: tone{.82, .085}, kernel: tone{.70, .075}, label: tone{.75, .12}}
	dark := flameTheme{user: tone{.44, .075}, kernel: tone{.34, .055}, label: tone{.50, .10}}
	return s.theme(light) + "@media (prefers-color-scheme: dark){\n" + s.theme(dark) + "}\n"
}

func (s *svgWriter) theme(t flameTheme) string {
	var b strings.Builder
	seen := map[string]bool{}
	for i := range s.f.roots {
		class := s.colourClass(i)
		if seen[class] {
			continue
		}
		seen[class] = true
		hue, full := flameHues()[s.hues[i]], 1.0
		if class == "host" {
			hue, full = 260, 0.15
		}
		for shade := range flameShades {
			step := 0.022 * float64(shade-1)
			fmt.Fprintf(&b, ".%s.s%d rect{fill:%s}\n", class, shade, oklch(t.user.light+step, t.user.chroma*full, hue))
			fmt.Fprintf(&b, ".%s.k.s%d rect{fill:%s}\n", class, shade,
				oklch(t.kernel.light+step, t.kernel.chroma*full, hue))
		}
		fmt.Fprintf(&b, ".%[1]s.label rect,.%[1]s.chip rect{fill:%[2]s}\n", class,
			oklch(t.label.light, t.label.chroma*full, hue))
	}
	return b.String()
}

// oklch gives the sRGB notation of a colour in OKLCH (Björn Ottosson, "A
// perceptual color space for image processing").
func oklch(light, chroma, hue float64) string {
	a, b := chroma*math.Cos(hue*math.Pi/180), chroma*math.Sin(hue*math.Pi/180)
	l := cube(light + 0.3963377774*a + 0.2158037573*b)
	m := cube(light - 0.1055613458*a - 0.0638541728*b)
	s := cube(light - 0.0894841775*a - 1.2914855480*b)
	return fmt.Sprintf("#%02x%02x%02x",
		srgb(4.0767416621*l-3.3077115913*m+0.2309699292*s),
		srgb(-1.2684380046*l+2.6097574011*m-0.3413193965*s),
		srgb(-0.0041960863*l-0.7034186147*m+1.7076147010*s))
}

func cube(x float64) float64 { return x * x * x }

// srgb turns a linear channel into 0 to 255.
func srgb(x float64) uint8 {
	if x <= 0.0031308 {
		x *= 12.92
	} else {
		x = 1.055*math.Pow(x, 1/2.4) - 0.055
	}
	return uint8(math.Round(255 * min(max(x, 0), 1)))
}
