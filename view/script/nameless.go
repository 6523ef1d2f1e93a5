// SPDX-License-Identifier: Apache-2.0

package script

// nameless counts the samples with frames that have no name, by the path of
// the object that these are in.
type nameless struct {
	numbers map[string]uint32 // index into objects, plus one
	objects []namelessObject
}

type namelessObject struct {
	path    string
	samples uint64
	last    uint64 // the sample that was counted last
}

// number is that of a path.
func (n *nameless) number(path string) uint32 {
	i := n.numbers[path]
	if i == 0 {
		if n.numbers == nil {
			n.numbers = make(map[string]uint32)
		}
		n.objects = append(n.objects, namelessObject{path: path})
		i = uint32(len(n.objects))
		n.numbers[path] = i
	}
	return i
}

// add counts the object i for a sample, whose number is not 0, once.
func (n *nameless) add(i uint32, sample uint64) {
	if o := &n.objects[i-1]; o.last != sample {
		o.samples++
		o.last = sample
	}
}

// byPath are the counts.
func (n *nameless) byPath() map[string]uint64 {
	counts := make(map[string]uint64, len(n.objects))
	for _, o := range n.objects {
		counts[o.path] = o.samples
	}
	return counts
}
