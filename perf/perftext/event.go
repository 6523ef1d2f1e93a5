// SPDX-License-Identifier: Apache-2.0

package perftext

import "github.com/gantry-tools/gantry/perf"

// event walks an event line.
func (f *fields) event(ev *perf.Event) {
	f.str(&ev.Name)
	f.attr(&ev.Attr)
	f.words("ids", 10, &ev.IDs)
}

// attr walks the fields of an attr. Those that are zero are left out.
func (f *fields) attr(a *perf.Attr) {
	enum(f, "type", &a.Type, typeNames())
	enum(f, "config", &a.Config, configNames(a.Type))
	f.frequency(a)
	flags(f, "sample", &a.SampleType, sampleNames())
	flags(f, "read", &a.ReadFormat, readNames())
	precise := uint8(a.Flags.PreciseIP())
	num(f, "precise", &precise)
	if precise > 3 {
		f.fail(syntaxError(f.end, "precise is 0 to 3"))
	}
	rest := a.Flags.WithPreciseIP(0) &^ perf.AttrFreq
	flags(f, "flags", &rest, attrNames())
	a.Flags = rest.WithPreciseIP(int(precise)) | a.Flags&perf.AttrFreq
	num(f, "wakeup", &a.Wakeup)
	hexa(f, "bp_type", &a.BPType)
	hexa(f, "config1", &a.Config1)
	hexa(f, "config2", &a.Config2)
	flags(f, "branch", &a.BranchSampleType, branchNames())
	hexa(f, "regs_user", &a.SampleRegsUser)
	num(f, "stack_user", &a.SampleStackUser)
	num(f, "clockid", &a.ClockID)
	hexa(f, "regs_intr", &a.SampleRegsIntr)
	num(f, "aux_watermark", &a.AuxWatermark)
	num(f, "max_stack", &a.SampleMaxStack)
	hexa(f, "reserved2", &a.Reserved2)
	num(f, "aux_sample_size", &a.AuxSampleSize)
	hexa(f, "aux_action", &a.AuxAction)
	hexa(f, "sig_data", &a.SigData)
	hexa(f, "config3", &a.Config3)
	hexa(f, "config4", &a.Config4)
	num(f, "size", &a.Size)
	f.bytes("extra", &a.Extra)
	f.attrSize(a)
}

// frequency is the period or, if it is given as freq, the frequency.
func (f *fields) frequency(a *perf.Attr) {
	if f.parse && f.has("freq") {
		a.Flags |= perf.AttrFreq
	}
	if a.Flags.Has(perf.AttrFreq) {
		all := f.all
		f.all = true
		num(f, "freq", &a.SampleCount)
		f.all = all
		return
	}
	num(f, "period", &a.SampleCount)
}

// maxAttrSize is a page, the most that the kernel takes.
const maxAttrSize = 4096

// attrSize checks that the attr can be encoded in its size, and that extra
// bytes have their place.
func (f *fields) attrSize(a *perf.Attr) {
	switch {
	case !f.parse || f.err != nil:
	case a.Size != 0 && (a.Size < perf.AttrSizeVer0 || a.Size > maxAttrSize || a.Size%8 != 0):
		f.fail(syntaxError(f.end, "an attr cannot have size=%d", a.Size))
	case len(a.Extra) > 0 && int(a.Size) != perf.AttrSize+len(a.Extra):
		f.fail(syntaxError(f.end, "%d extra bytes do not fit size=%d", len(a.Extra), a.Size))
	}
}
