// What the browser tests do to a flame graph, and what they see of it.
var failure = '';
window.addEventListener('error', function (e) { failure = e.message; });

function boxes() { return Array.from(document.querySelectorAll('#frames g')); }
function name(g) { return g.querySelector('title').textContent.split('\n')[0]; }
function box(n) { return boxes().find(function (g) { return name(g) === n; }); }
function click(e) { e.dispatchEvent(new MouseEvent('click', { bubbles: true })); }
function hover(e) { e.dispatchEvent(new MouseEvent('mouseenter')); }
function field() { return document.querySelector('#find input'); }
function press(key) { (document.activeElement || window).dispatchEvent(new KeyboardEvent('keydown', { key: key, bubbles: true, cancelable: true })); }
function type(text) {
  field().value = text;
  field().dispatchEvent(new Event('input'));
}

function state() {
  var shown = boxes().filter(function (g) { return g.style.display !== 'none'; });
  var whole = document.getElementById('frames').getBoundingClientRect().width, width = {};
  shown.forEach(function (g) { width[name(g)] = g.querySelector('rect').getBoundingClientRect().width / whole; });
  var withClass = function (c) { return boxes().filter(function (g) { return g.classList.contains(c); }); };
  return {
    Shown: shown.map(name), Width: width, Hits: withClass('hit').map(name),
    Above: withClass('above').filter(function (g) { return g.style.display !== 'none'; }).map(name),
    Reset: document.getElementById('reset').textContent, Matched: document.getElementById('matched').textContent,
    Details: document.getElementById('details').textContent, Focused: document.activeElement === field(),
    Title: document.title, Error: failure
  };
}

function report(f) {
  var out;
  try { out = f(); } catch (e) { out = { start: { Error: String(e) }, end: { Error: String(e) } }; }
  document.documentElement.setAttribute('data-result', JSON.stringify(out));
}
