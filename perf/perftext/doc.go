// SPDX-License-Identifier: Apache-2.0

// Package perftext is perf.data as text and back: a form that a person can
// read and write, and that diff compares line by line. Tests keep their
// recordings in it; gantry script --raw prints it.
//
// [Parse] reads a text into a [Recording], [Recording.WriteText] writes it
// again, [Recording.WriteData] makes perf.data of it, and [Write] prints what
// a perfdata.Reader reads.
//
//	perfdata little
//	feature HOSTNAME "vm"
//	event "cpu-clock" type=software config=cpu-clock freq=999 sample=ip|tid|time|cpu flags=sample_id_all ids=7
//	COMM misc=user pid=12 tid=12 "init" @time=100
//	SAMPLE misc=user ip=0x401000 pid=12 tid=12 time=123456
//
// The first line says the byte order, and "pipe" behind it that the recording
// is a stream. Then come features, events and records, one per line: a word,
// fields as key=value in any order, and strings in the quotes of Go. Numbers
// are decimal or, after 0x, hexadecimal; bytes are hexadecimal digits; sets of
// flags are names with | between them; lists have commas. A field that is not
// given is zero, and most zeros are not printed. # starts a comment.
//
// A record belongs to the event number ev, 0 if not given. The sample_id
// behind its body has an @ before its keys. The id of a sample, and of a
// sample_id, is the first of the event's if not given. Records that make no
// sense, or that package perf does not decode, have what follows
// their header behind bytes=.
//
// What is not kept: padding, the payload of AUXTRACE, and the EVENT_DESC and
// COMPRESSED features, which a perfdata.Writer makes itself.
package perftext
