// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/container"
)

// model is the state of the screen.
type model struct {
	window *Window
	status func() Status
	width  int
	height int

	level  Level
	only   Selection
	path   []place // where Esc leads back to
	order  Order
	filter string
	typing bool
	frozen bool
	help   bool

	table  *Table
	cursor int
	at     Row // the row of the cursor, which it follows
	first  int // row at the top
	ended  error
}

// place is a table that was left for another one.
type place struct {
	level  Level
	only   Selection
	filter string
	at     Row
}

// Messages to the model.
type (
	sliceMsg analysis.Slice
	tickMsg  time.Time
	endMsg   struct{ err error }
)

func newModel(w *Window, status func() Status, first Level) *model {
	m := &model{window: w, status: status, level: first, width: 80, height: 24}
	m.update()
	return m
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd {
	if m.window.shares {
		return nil // nothing changes
	}
	return tick()
}

func tick() tea.Cmd { return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) }) }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 20), max(msg.Height, 5)
	case sliceMsg:
		m.window.Add(analysis.Slice(msg), time.Now())
		m.update()
	case tickMsg:
		m.window.Forget(time.Now())
		m.update()
		return m, tick()
	case endMsg:
		m.ended = msg.err
		return m, tea.Quit
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	return m, nil
}

// update adds the window up, unless the screen is frozen.
func (m *model) update() {
	if m.frozen {
		return
	}
	m.build()
}

func (m *model) build() {
	m.table = m.window.Table(m.level, m.only)
	m.arrange()
}

// arrange sorts and filters, and keeps the cursor on its row.
func (m *model) arrange() {
	m.table.Filter(m.filter)
	m.table.Sort(m.order)
	m.cursor = min(m.cursor, max(0, len(m.table.Rows)-1))
	for i := range m.table.Rows {
		if same(&m.table.Rows[i], &m.at) {
			m.cursor = i
			break
		}
	}
}

// same reports whether two rows are about the same.
func same(a, b *Row) bool {
	return a.Container == b.Container && a.PID == b.PID && a.Function == b.Function && a.Object == b.Object
}

// key carries out what a key stands for.
func (m *model) key(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.String()
	if name == "ctrl+c" {
		return tea.Quit
	}
	if m.typing {
		m.typed(name, msg.Key().Text)
		return nil
	}
	switch name {
	case "q":
		return tea.Quit
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.rows())
	case "pgdown":
		m.move(m.rows())
	case "home", "g":
		m.move(-len(m.table.Rows))
	case "end", "G":
		m.move(len(m.table.Rows))
	case "enter", "right", "l":
		m.open()
	case "esc", "left", "h", "backspace":
		m.back()
	case "/":
		m.typing = true
	case "space", " ":
		m.frozen = !m.frozen
		m.update()
	case "s":
		m.order = (m.order + 1) % (ByName + 1)
		m.arrange()
	case "c", "p", "f":
		m.level = map[string]Level{"c": Containers, "p": Processes, "f": Functions}[name]
		if m.level <= Processes {
			m.only.PID = 0
		}
		if m.level == Containers {
			m.only, m.path = Selection{}, nil
		}
		m.reset()
	case "e":
		m.window.next()
		m.build()
	case "?":
		m.help = !m.help
	}
	return nil
}

// typed is a key while the filter is typed.
func (m *model) typed(name, text string) {
	switch name {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	default:
		m.filter += text
	}
	m.build()
}

// move moves the cursor.
func (m *model) move(by int) {
	m.cursor = max(0, min(m.cursor+by, len(m.table.Rows)-1))
	m.at = Row{}
	if m.cursor < len(m.table.Rows) {
		m.at = m.table.Rows[m.cursor]
	}
}

// open shows what is in the row of the cursor.
func (m *model) open() {
	if m.level == Functions || m.cursor >= len(m.table.Rows) {
		return
	}
	row := m.table.Rows[m.cursor]
	m.path = append(m.path, place{m.level, m.only, m.filter, row})
	m.only.Container = row.Container
	m.only.PID = row.PID
	m.level++
	m.reset()
}

// back shows where open came from.
func (m *model) back() {
	if len(m.path) == 0 {
		m.filter = ""
		m.build()
		return
	}
	p := m.path[len(m.path)-1]
	m.path = m.path[:len(m.path)-1]
	m.level, m.only, m.filter, m.at = p.level, p.only, p.filter, p.at
	m.cursor, m.first = 0, 0
	m.build()
}

// reset begins a table that was not shown before.
func (m *model) reset() {
	m.cursor, m.first, m.at, m.filter = 0, 0, Row{}, ""
	m.build()
}

// rows is how many rows there is room for: beside the summary, where it is, the heading and the keys.
func (m *model) rows() int { return max(1, m.height-4) }

// where says what the table is about.
func (m *model) where() string {
	parts := []string{m.level.String()}
	if len(m.table.Rows) == 1 {
		parts[0] = map[Level]string{Containers: "container", Processes: "process", Functions: "function"}[m.level]
	}
	if m.only.Container != "" {
		parts = append(parts, "in "+container.Printable(m.only.Container))
	}
	if m.only.PID != 0 {
		name := ""
		if n := len(m.path); n > 0 {
			name = container.Printable(m.path[n-1].at.Command) + " "
		}
		parts = append(parts, fmt.Sprintf("of %s%d", name, m.only.PID))
	}
	text := fmt.Sprintf("%d %s, by %s", len(m.table.Rows), strings.Join(parts, " "), m.order)
	if m.filter != "" || m.typing {
		text += ", with /" + container.Printable(m.filter)
	}
	if m.typing {
		text += "_"
	}
	if m.frozen {
		text += ", FROZEN"
	}
	return text
}

const (
	keys      = "enter open  esc back  / filter  s sort  space freeze  c p f level  ? help  q"
	shortKeys = "enter esc / s space c p f ? q"
)

// helpText is what ? shows.
var helpText = []string{
	"enter, right   what is in the row: processes of a container, functions of a process",
	"esc, left      back",
	"c, p, f        containers, processes, functions",
	"/              type a text: rows that have it stay; esc ends that",
	"s              sort by self, total (with what a function calls), name",
	"space          freeze, and go on",
	"e              the next event, if there are several",
	"up, down, page up, page down, home, end",
	"q              quit",
	"",
	"CPU % is of one CPU, SHARE % of all that is not idle. [host] is in no container.",
}

// Escape sequences: neither is a colour.
const (
	bold, reverse, plain = "\x1b[1m", "\x1b[7m", "\x1b[0m"
)

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines is the screen.
func (m *model) lines() []string {
	status := m.status()
	list := []string{bold + m.table.Summary(&status, m.width) + plain, ansi.Truncate(m.where(), m.width, "~"),
		reverse + pad(m.table.Heading(m.width), m.width) + plain}
	n := m.rows()
	if m.cursor < m.first {
		m.first = m.cursor
	}
	if m.cursor >= m.first+n {
		m.first = m.cursor - n + 1
	}
	m.first = max(0, min(m.first, len(m.table.Rows)-n))
	for i := range n {
		switch row := m.first + i; {
		case m.help:
			if i < len(helpText) {
				list = append(list, ansi.Truncate(helpText[i], m.width, "~"))
			} else {
				list = append(list, "")
			}
		case row >= len(m.table.Rows):
			list = append(list, "")
		case row == m.cursor:
			list = append(list, reverse+pad(m.table.Line(row, m.width), m.width)+plain)
		default:
			list = append(list, m.table.Line(row, m.width))
		}
	}
	footer := keys
	if len(footer) > m.width {
		footer = shortKeys
	}
	return append(list, ansi.Truncate(footer, m.width, "~"))
}

// pad fills a line.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
}
