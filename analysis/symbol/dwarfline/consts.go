// SPDX-License-Identifier: Apache-2.0

package dwarfline

// Numbers of the DWARF standard, version 5, chapter 7, and of its GNU
// extensions, as far as they count here.
const (
	tagInlinedSubroutine = 0x1d
	tagSubprogram        = 0x2e
	tagPartialUnit       = 0x3c

	atName           = 0x03
	atStmtList       = 0x10
	atLowpc          = 0x11
	atHighpc         = 0x12
	atCompDir        = 0x1b
	atAbstractOrigin = 0x31
	atSpecification  = 0x47
	atRanges         = 0x55
	atCallFile       = 0x58
	atCallLine       = 0x59
	atLinkageName    = 0x6e
	atStrOffsetsBase = 0x72
	atAddrBase       = 0x73
	atRnglistsBase   = 0x74
	atDwoName        = 0x76
	atMIPSLinkage    = 0x2007
	atGNUDwoName     = 0x2130
	atGNUDwoID       = 0x2131
	atGNURangesBase  = 0x2132
	atGNUAddrBase    = 0x2133

	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21

	unitCompile      = 0x01
	unitType         = 0x02
	unitPartial      = 0x03
	unitSkeleton     = 0x04
	unitSplitCompile = 0x05
	unitSplitType    = 0x06

	rleEndOfList    = 0x00
	rleBaseAddressx = 0x01
	rleStartxEndx   = 0x02
	rleStartxLength = 0x03
	rleOffsetPair   = 0x04
	rleBaseAddress  = 0x05
	rleStartEnd     = 0x06
	rleStartLength  = 0x07

	lnctPath           = 0x1
	lnctDirectoryIndex = 0x2

	lnsCopy             = 0x01
	lnsAdvancePC        = 0x02
	lnsAdvanceLine      = 0x03
	lnsSetFile          = 0x04
	lnsSetColumn        = 0x05
	lnsNegateStmt       = 0x06
	lnsSetBasicBlock    = 0x07
	lnsConstAddPC       = 0x08
	lnsFixedAdvancePC   = 0x09
	lnsSetPrologueEnd   = 0x0a
	lnsSetEpilogueBegin = 0x0b
	lnsSetISA           = 0x0c

	lneEndSequence = 0x01
	lneSetAddress  = 0x02
	lneDefineFile  = 0x03

	sectInfo       = 1 // in the index of a package of split DWARF
	sectAbbrev     = 3
	sectLine       = 4
	sectStrOffsets = 6
	sectRnglists   = 8
)
