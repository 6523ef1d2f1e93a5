// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"fmt"
	"io"
	"strings"
)

// CPU is what /proc/cpuinfo tells about the first processor.
type CPU struct {
	// Model is the name for people (CPUDESC of perf.data): "model name" on
	// amd64, the core's name or its numbers on arm64.
	Model string
	// ID is the CPUID of perf.data, "vendor,family,model,stepping" on amd64,
	// the MIDR in hex on arm64; "" if the file does not tell.
	ID string
}

// CPU reads /proc/cpuinfo.
func (f FS) CPU() (CPU, error) {
	return parseFile(f.Path("proc/cpuinfo"), ParseCPU)
}

// ParseCPU parses the first processor of a cpuinfo file.
func ParseCPU(r io.Reader) (CPU, error) {
	kv := make(map[string]string, 32)
	sc := lines(r)
	for sc.Scan() {
		key, val, ok := strings.Cut(sc.Text(), ":")
		if !ok && len(kv) > 1 {
			break // the empty line behind the first processor
		}
		if key = strings.TrimSpace(key); key != "" {
			kv[key] = strings.TrimSpace(val)
		}
	}
	if err := sc.Err(); err != nil {
		return CPU{}, err
	}
	if imp := kv["CPU implementer"]; imp != "" {
		return armCPU(kv), nil
	}
	c := CPU{Model: kv["model name"]}
	if v := kv["vendor_id"]; v != "" {
		c.ID = strings.Join([]string{v, kv["cpu family"], kv["model"], kv["stepping"]}, ",")
	}
	if c.Model == "" {
		c.Model = kv["Processor"]
	}
	if c == (CPU{}) {
		return c, fmt.Errorf("model name %w", errMissing)
	}
	return c, nil
}

func armCPU(kv map[string]string) CPU {
	imp, part := kv["CPU implementer"], kv["CPU part"]
	c := CPU{Model: kv["model name"]}
	if c.Model == "" {
		c.Model = armCore(imp, part)
	}
	if c.Model == "" {
		c.Model = fmt.Sprintf("ARM implementer %s part %s", imp, part)
	}
	var midr [4]uint64
	for i, f := range []struct {
		text, format string
	}{{imp, "0x%x"}, {kv["CPU variant"], "0x%x"}, {part, "0x%x"}, {kv["CPU revision"], "%d"}} {
		if _, err := fmt.Sscanf(f.text, f.format, &midr[i]); err != nil {
			return c
		}
	}
	// MIDR_EL1: implementer, variant, architecture (0xf), part, revision.
	id := midr[0]&0xff<<24 | midr[1]&0xf<<20 | 0xf<<16 | midr[2]&0xfff<<4 | midr[3]&0xf
	c.ID = fmt.Sprintf("0x%016x", id)
	return c
}

// armCore names the cores that servers and small boards have.
func armCore(implementer, part string) string {
	switch implementer + " " + part {
	case "0x41 0xd03":
		return "Cortex-A53"
	case "0x41 0xd08":
		return "Cortex-A72"
	case "0x41 0xd0b":
		return "Cortex-A76"
	case "0x41 0xd0c":
		return "Neoverse-N1"
	case "0x41 0xd40":
		return "Neoverse-V1"
	case "0x41 0xd49":
		return "Neoverse-N2"
	case "0x41 0xd4f":
		return "Neoverse-V2"
	case "0x41 0xd84":
		return "Neoverse-V3"
	case "0x41 0xd8e":
		return "Neoverse-N3"
	case "0xc0 0xac3":
		return "Ampere-1"
	case "0xc0 0xac4":
		return "Ampere-1a"
	case "0x43 0x0af":
		return "ThunderX2"
	case "0x48 0xd01":
		return "Kunpeng-920"
	}
	return ""
}
