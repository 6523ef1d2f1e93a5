// SPDX-License-Identifier: Apache-2.0

package printfmt

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
)

// append prints the verb's argument.
func (v *verb) append(c *call, dst []byte) []byte {
	width, prec := v.width, v.prec
	minus := v.minus
	if v.starWidth != nil {
		if width = clamp(v.starWidth.num(c), maxWidth); width < 0 {
			width, minus = -width, true
		}
	}
	if v.starPrec != nil {
		prec = clamp(v.starPrec.num(c), maxText)
	}
	start := len(dst)
	conv := v.conv
	if _, ok := v.arg.(unknown); ok {
		conv = 's'
	}
	switch conv {
	case 's':
		dst = v.arg.text(c, dst)
		if prec >= 0 && len(dst)-start > prec {
			dst = dst[:start+prec]
		}
	case 'c':
		dst = append(dst, byte(v.arg.num(c)))
	case 'p':
		dst = v.pointer(c, dst, &width)
	default:
		return v.number(c, dst, width, prec, minus)
	}
	return pad(dst, start, width, minus, ' ')
}

// clamp is a width or precision that an argument gives, an int.
func clamp(v uint64, most int) int { return max(min(int(int32(v)), most), -most) }

// pad fills what was appended since start up to the width.
func pad(dst []byte, start, width int, minus bool, with byte) []byte {
	n := width - (len(dst) - start)
	if n <= 0 {
		return dst
	}
	for range n {
		dst = append(dst, with)
	}
	if !minus {
		copy(dst[start+n:], dst[start:])
		for i := range n {
			dst[start+i] = with
		}
	}
	return dst
}

// number prints an integer.
func (v *verb) number(c *call, dst []byte, width, prec int, minus bool) []byte {
	start := len(dst)
	signed := v.conv == 'd' || v.conv == 'i'
	x := extend(v.arg.num(c), v.size, signed)
	switch {
	case signed && int64(x) < 0:
		dst = append(dst, '-')
		x = -x
	case signed && v.plus:
		dst = append(dst, '+')
	case signed && v.space:
		dst = append(dst, ' ')
	case v.alt && x != 0 && v.conv != 'u' && !signed:
		dst = append(dst, '0')
		if v.conv != 'o' {
			dst = append(dst, v.conv)
		}
	}
	digits := len(dst)
	switch v.conv {
	case 'x', 'X':
		dst = strconv.AppendUint(dst, x, 16)
		if v.conv == 'X' {
			upper(dst[digits:])
		}
	case 'o':
		dst = strconv.AppendUint(dst, x, 8)
	default:
		dst = strconv.AppendUint(dst, x, 10)
	}
	if prec >= 0 {
		dst = pad(dst, digits, min(prec, maxWidth), false, '0')
	} else if v.zero && !minus {
		dst = pad(dst, digits, width-(digits-start), false, '0')
	}
	return pad(dst, start, width, minus, ' ')
}

func upper(b []byte) {
	for i, c := range b {
		if c >= 'a' && c <= 'f' {
			b[i] = c - 32
		}
	}
}

// pointer prints %p and what the kernel adds to it.
func (v *verb) pointer(c *call, dst []byte, width *int) []byte {
	switch v.ext {
	case "S", "F", "B", "s", "f":
		return v.symbol(c, dst)
	case "M", "m":
		return appendMAC(dst, v.arg.bytes(c), v.ext == "M")
	case "U", "Ub", "UB", "Ul", "UL":
		return appendUUID(dst, v.arg.bytes(c), v.ext)
	case "b", "bl":
		// The width is the number of bits.
		*width = 0
		return bitmask{of: v.arg}.text(c, dst)
	}
	if len(v.ext) > 1 && (v.ext[0] == 'I' || v.ext[0] == 'i') {
		return v.address(c, dst)
	}
	if b := v.arg.bytes(c); b != nil {
		return hex.AppendEncode(dst, b)
	}
	x := v.arg.num(c)
	if x == 0 {
		return append(dst, "(nil)"...) // as printf does in user space
	}
	return strconv.AppendUint(append(dst, "0x"...), x, 16)
}

// symbol prints a kernel address by name: with the offset if the letter is a
// capital.
func (v *verb) symbol(c *call, dst []byte) []byte {
	x := v.arg.num(c)
	if c.o.Symbol != nil {
		if name, off, ok := c.o.Symbol(x); ok {
			dst = append(dst, name...)
			if v.ext < "a" {
				dst = strconv.AppendUint(append(dst, "+0x"...), off, 16)
			}
			return dst
		}
	}
	return strconv.AppendUint(append(dst, "0x"...), x, 16)
}

func appendMAC(dst, b []byte, colons bool) []byte {
	for i := range min(6, len(b)) {
		if i > 0 && colons {
			dst = append(dst, ':')
		}
		dst = hex.AppendEncode(dst, b[i:i+1])
	}
	return dst
}

// appendUUID prints a UUID; the l forms have their first words little endian.
func appendUUID(dst, b []byte, ext string) []byte {
	if len(b) < 16 {
		return append(dst, "(no uuid)"...)
	}
	order := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	if len(ext) == 2 && ext[1]|0x20 == 'l' {
		copy(order, []int{3, 2, 1, 0, 5, 4, 7, 6})
	}
	start := len(dst)
	for i, at := range order {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, b[at:at+1])
	}
	if len(ext) == 2 && ext[1] < 'a' {
		upper(dst[start:])
	}
	return dst
}

// The families of struct sockaddr that %pIS prints.
const (
	familyInet  = 2
	familyInet6 = 10
)

// address prints an IP address; the S forms take it out of a sockaddr.
func (v *verb) address(c *call, dst []byte) []byte {
	b := v.arg.bytes(c)
	port := -1
	size := 4
	if v.ext[1] == '6' {
		size = 16
	}
	if v.ext[1] == 'S' {
		if len(b) < 8 {
			return append(dst, "(no address)"...)
		}
		family := c.order.Uint16(b)
		if len(v.ext) > 2 {
			port = int(b[2])<<8 | int(b[3])
		}
		switch family {
		case familyInet:
			b = b[4:]
		case familyInet6:
			b, size = b[8:], 16
		default:
			return fmt.Appendf(dst, "(family %d)", family)
		}
	}
	if len(b) < size {
		return append(dst, "(no address)"...)
	}
	addr, _ := netip.AddrFromSlice(b[:size])
	switch {
	case port >= 0:
		return netip.AddrPortFrom(addr, uint16(port)).AppendTo(dst)
	case v.ext == "I6":
		return append(dst, addr.StringExpanded()...)
	}
	return addr.AppendTo(dst)
}
