// SPDX-License-Identifier: Apache-2.0

package swiftlang

import (
	"strings"
	"testing"
)

// names are symbols whose meaning the Swift project documents in
// test/Demangle/Inputs, with types and what the compiler did to them left out.
var names = map[string]string{
	"$s4main3fooyyF":                                  "main.foo()",
	"_$s4main3fooyyF":                                 "main.foo()",
	"$s7example1fyyYaF":                               "example.f()",
	"$s7example1fyyYaKF":                              "example.f()",
	"$s7example1fyyYaFTu":                             "",
	"_$S4test6testitySiyt_tF":                         "test.testit(_:)",
	"_$S3abc6testityySiFTm":                           "merged abc.testit(_:)",
	"_$S8mangling14varargsVsArray3arr1nySid_SStF":     "mangling.varargsVsArray(arr:n:)",
	"_$S8mangling14varargsVsArray3arr1nySaySiGd_SStF": "mangling.varargsVsArray(arr:n:)",
	"_$S8mangling14varargsVsArray3arrySid_tF":         "mangling.varargsVsArray(arr:)",
	"_$S8mangling14varargsVsArray3arrySaySiGd_tF":     "mangling.varargsVsArray(arr:)",
	"_$S3foo6testityyyyc_yyctF":                       "foo.testit(_:_:)",
	"_$S3foo6testityyyyc_yyctF1a1bTf3pfpf_n":          "specialized foo.testit(_:_:)",
	"_$S4main5inneryys5Int32Vz_yADctF25closure_with_box_argumentxz_Bi32__lXXTf1nc_n":                                             "",
	"_$Ss10DictionaryV3t17E6Index2V1loiySbAEyxq__G_AGtFZ":                                                                        "static (extension in t17):Swift.Dictionary.Index2.< infix(_:_:)",
	"_$S10Foundation11MeasurementV12SimulatorKitSo9UnitAngleCRszlE11OrientationO2eeoiySbAcDEAGOyAF_G_AKtFZ":                      "static (extension in SimulatorKit):Foundation.Measurement.Orientation.== infix(_:_:)",
	"_$S4main4TestC1xACSi_tc6_PRIV_Llfc":                                                                                         "main.Test.init(x:)",
	"$s4test3StrCACycfC":                                                                                                         "test.Str.__allocating_init()",
	"$s4Test5ProtoP8IteratorV10collectionAEy_qd__Gqd___tcfc":                                                                     "Test.Proto.Iterator.init(collection:)",
	"$s4test3fooV4blahyAA1SV1fQryFQOy_Qo_AHF":                                                                                    "test.foo.blah(_:)",
	"$s3red4testyAA3ResOyxSayq_GAEs5ErrorAAq_sAFHD1__HCg_GADyxq_GsAFR_r0_lF":                                                     "red.test(_:)",
	"$s3red4testyAA7OurTypeOy4them05TheirD0Vy5AssocQzGAjE0F8ProtocolAAxAA0c7DerivedH0HD1_AA0c4BaseH0HI1_AieKHA2__HCg_GxmAaLRzlF": "red.test(_:)",
	"$s20mangling_retroactive5test0yyAA1ZVy12RetroactiveB1XVSiAE1YVAG0D1A1PAAyHCg_AiJ1QAAyHCg1_GF":                               "mangling_retroactive.test0(_:)",
	"$s20mangling_retroactive5test0yyAA1ZVy12RetroactiveB1XVSiAE1YVAG0D1A1PHPyHCg_AiJ1QHPyHCg1_GF":                               "mangling_retroactive.test0(_:)",
	"$s17property_wrappers10WithTuplesV9fractionsSd_S2dtvpfP":                                                                    "property wrapper backing initializer of property_wrappers.WithTuples.fractions",
	"$sSo17OS_dispatch_queueC4sync7executeyyyXE_tFTOTA":                                                                          "partial apply for @nonobjc __C.OS_dispatch_queue.sync(execute:)",
	"$s18keypaths_inlinable13KeypathStructV8computedSSvpACTKq":                                                                   "key path getter for keypaths_inlinable.KeypathStruct.computed",
	"$s1A1gyyxlFx_qd__t_Ti5":                                                   "inlined A.g(_:)",
	"$s4Test6testityyxlFAA8MystructV_TB5":                                      "specialized Test.testit(_:)",
	"$sSo5GizmoC11doSomethingyypSgSaySSGSgFToTembgnn_":                         "outlined bridged method of @objc __C.Gizmo.doSomething(_:)",
	"$s13test_mangling3fooyS2f_S2ftF":                                          "test_mangling.foo(_:_:_:)",
	"$s4main20receiveInstantiationyySo34__CxxTemplateInst12MagicWrapperIiEVzF": "main.receiveInstantiation(_:)",
	"$s4main19returnInstantiationSo34__CxxTemplateInst12MagicWrapperIiEVyF":    "main.returnInstantiation()",
	"_$Ss17MutableCollectionP1asAARzs012RandomAccessB0RzsAA11SubSequences013BidirectionalB0PRpzsAdHRQlE06rotatecD015shiftingToStart5Indexs01_A9IndexablePQzAN_tFAKs01_M4BasePQzAQcfU_": "closure #1 in (extension in a):Swift.MutableCollection.rotateRandomAccess(shiftingToStart:)",
	// Data, and what is none or broken.
	"$SSiSHsWP": "", "$s4main1gyySiXCvp": "", "$s4main3FooVMn": "", "$sSi": "", "$s": "", "main": "", "$sSD5IndexVy__GD": "", "$syQo": "",
	"_$S3BBBBf0602365061_": "", "_$S3BBBBi0602365061_": "", "_$s18ReversedCollectionVyxGs04LazyB8ProtocolfC": "", "_SocketJoin": "",
	"$s0059xxxxxxxxxxxxxxx_ttttttttBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBee": "",
	"_$iW": "", "$s3fooA8": "", "$s3fooAz": "",
	// By the documented grammar.
	"$s4main3FooV1xSivg":           "main.Foo.x.getter",
	"$s4main3FooV1xSivs":           "main.Foo.x.setter",
	"$s4main3FooV1xSivM":           "main.Foo.x.modify",
	"$s4main3FooV1xSivr":           "main.Foo.x.read",
	"$s4main3FooV1xSivgZ":          "static main.Foo.x.getter",
	"$s4main1xSivau":               "main.x.unsafeMutableAddressor",
	"$s4main1x_WZ":                 "one-time initialization function for main.x",
	"$s4main3FooVyS2icig":          "main.Foo.subscript(_:).getter",
	"$s4main3FooCfd":               "main.Foo.deinit",
	"$s4main3FooCfD":               "main.Foo.__deallocating_deinit",
	"$s4main3FooCMa":               "type metadata accessor for main.Foo",
	"$s4main3FooVwxx":              "destroy value witness for main.Foo",
	"$s4main3FooVSgWOe":            "outlined consume of main.Foo?",
	"$sSay4main3FooVGWOh":          "outlined destroy of Swift.Array<main.Foo>",
	"$sSi_SStWOc":                  "outlined init with copy of (Swift.Int, Swift.String)",
	"$s4main3fooyyFyycfU_":         "closure #1 in main.foo()",
	"$s4main3fooyyFyycfU_yycfU0_":  "closure #2 in closure #1 in main.foo()",
	"$s4main3fooyyFyycfU_TA":       "partial apply for closure #1 in main.foo()",
	"$s4main3fooyyFyyXEfu_":        "implicit closure #1 in main.foo()",
	"$s4main3foo1xySi_tFfA_":       "default argument 0 in main.foo(x:)",
	"$s4main3fooyyF3barL_yyF":      "bar #1() in main.foo()",
	"$s4main3fooyyF3BarL_V3bazyyF": "baz() in Bar #1 in main.foo()",
	"$s4main3bar33_0123456789ABCDEF0123456789ABCDEFLLyyF": "main.bar()",
	"$s4main3FooC3baryyFTj":                               "dispatch thunk of main.Foo.bar()",
	"$s4main3fooyyYaFTQ0_":                                "(1) await resume partial function for main.foo()",
	"$s4main3fooyyYaFTY1_":                                "(2) suspend resume partial function for main.foo()",
	"$s4main3fooyyF.resume.0":                             "main.foo().resume.0",
	"$s4main3FooVAA1PA2aDP3baryyFTW":                      "protocol witness for main.P.bar() in conformance main.Foo",
	"$sSiSgSSSgIegnr_AB_Tg5":                              "",
	"$sytIegr_Ieg_TR":                                     "reabstraction thunk",
	"$sSS4mainE5shoutSSyF":                                "(extension in main):Swift.String.shout()",
	"$s4main0012vergenza_JFayyF":                          "main.vergüenza()",
	"$s4main0A3FooyyF":                                    "main.mainFoo()",
	"$s4main5twiceyyxyXElF":                               "main.twice(_:)",
	"$s4main3map_2byySayxG_q_xXEtr0_lF":                   "main.map(_:by:)",
	"$s4main3mapyySayxG_q_xXEtr0_lF":                      "main.map(_:_:)",
	"$s4main1ooyySi_SitF":                                 "",
	"$s4main2ppopyS2iF":                                   "main.++ prefix(_:)",
	"$s4main6withUI02mymA_yyF":                            "",
	"$sSa6appendyyxnF":                                    "Swift.Array.append(_:)",
	"$sSa6appendyyxnFSi_Tg5":                              "specialized Swift.Array.append(_:)",
	"$ss5print_9separator10terminatoryypd_S2StF":          "Swift.print(_:separator:terminator:)",
	"$sScT5valuexvg":                                      "Swift.Task.value.getter",
}

func TestDemangle(t *testing.T) {
	for name, want := range names {
		if got, ok := Demangle(name); got != want || ok != (want != "") {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestBounds: what refers back twice to what refers back twice has no end, and what
// is long has one.
func TestBounds(t *testing.T) {
	const levels = 20
	bomb := "$s" + strings.Repeat("Say", levels) + "1a1SV"
	for i := range levels {
		bomb += "A" + string(rune('C'+i)) + "G"
	}
	long := strings.Repeat("abcdefgh", 1<<10)
	for _, name := range []string{
		bomb + "WOh", "$s" + strings.Repeat("1a", 1<<16), "$s1aA2000000000A", "$s1aA99999A", "$sS2000000000i", "$s1a" + strings.Repeat("A4000A", 1000),
		"$s1f" + strings.Repeat("Sg", 1<<14) + "WOh", "$s4main1fyyF" + strings.Repeat("yycfU_", 1000), "$s8192" + long + strings.Repeat("0aaA0", 1000),
	} {
		if got, ok := Demangle(name); ok {
			t.Errorf("%.40s... is %.40s", name, got)
		}
	}
}

// TestLongLabels: one long name for a thousand parameters is not even put together.
func TestLongLabels(t *testing.T) {
	for params, bad := range map[string]bool{"9": false, "999": true} {
		m := &machine{s: "1a1f400" + strings.Repeat("x", 400) + "A" + params + "CySi_S" + params + "itF"}
		for m.pos < len(m.s) && !m.bad {
			m.step()
		}
		if m.bad != bad {
			t.Errorf("%s more labels: failed %v, want %v", params, m.bad, bad)
		}
	}
}

func FuzzDemangle(f *testing.F) {
	for name := range names {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if got, ok := Demangle(name); len(got) > maxOutput+len(name) || ok == (got == "") {
			t.Fatalf("%q: %d bytes, %v", name, len(got), ok)
		}
	})
}
