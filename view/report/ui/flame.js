(function () {
'use strict';
// Geometry; the writer of the file uses the same numbers.
var ROW = 18, MARGIN = 12, CHAR = 6.6, LEGEND_Y = 64, LEGEND = 20, BAR = 26, NARROW = 640;

// cut shortens text to a number of letters.
function cut(text, letters) {
  var runes = Array.from(text);
  return runes.length <= letters ? text : runes.slice(0, Math.max(letters - 1, 0)).join('') + '…';
}

// fit is how much of a name a box of so many pixels shows. A path in front of
// the name, as Go has it, goes first.
function fit(name, px) {
  var letters = Math.floor((px - 8) / CHAR);
  if (letters < 3) return '';
  if (Array.from(name).length > letters) name = name.replace(/^[^(<[ ]*\//, '');
  return cut(name, letters);
}

// pattern turns what was typed into a test. What is no regular expression is
// searched as it stands.
function pattern(text) {
  try {
    var re = new RegExp(text, 'i');
    return function (s) { return re.test(s); };
  } catch (e) {
    text = text.toLowerCase();
    return function (s) { return s.toLowerCase().indexOf(text) >= 0; };
  }
}

// inside tells whether box b lies within box a, or is a.
function inside(a, b) {
  return b.start >= a.start && b.start + b.value <= a.start + a.value && b.depth >= a.depth;
}

// covered sums up the marked boxes within z; what lies above a marked box
// counts once. Boxes come with every box before those above it.
function covered(boxes, z) {
  var sum = 0, end = -1;
  boxes.forEach(function (b) {
    if (b.hit && inside(z, b) && b.start >= end) {
      sum += b.value;
      end = b.start + b.value;
    }
  });
  return sum;
}

function percent(part, whole) { return (whole ? 100 * part / whole : 0).toFixed(2) + '%'; }

var root = document.documentElement, frames = byId('frames'), details = byId('details'), bar = byId('bar');
var boxes = Array.from(frames.querySelectorAll('g')).map(function (g) {
  var n = g.getAttribute('data-b').split(',').map(Number), title = g.querySelector('title').textContent;
  return { g: g, rect: g.querySelector('rect'), text: g.querySelector('text'), depth: n[0], start: n[1], value: n[2],
    title: title, name: title.split('\n')[0], hit: false };
});
if (!boxes.length) return;
var title = byId('title').textContent, sub = byId('sub').textContent;
var all = boxes[0], zoomed = all, query = '', input, reset, matched;

function byId(id) { return document.getElementById(id); }

function svg(tag, attrs, parent) {
  var e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (var k in attrs) e.setAttribute(k, attrs[k]);
  parent.appendChild(e);
  return e;
}

// draw puts each box where the zoom and the window want it.
function draw() {
  root.setAttribute('width', '100%');
  var width = Math.max(root.getBoundingClientRect().width || window.innerWidth, 200), inner = width - 2 * MARGIN;
  frames.setAttribute('width', inner);
  boxes.forEach(function (b) {
    var within = inside(zoomed, b), above = !within && inside(b, zoomed);
    var x = above ? 0 : (b.start - zoomed.start) / zoomed.value * inner;
    var w = above ? inner : b.value / zoomed.value * inner;
    var show = (within || above) && w >= 0.2;
    b.g.style.display = show ? '' : 'none';
    if (!show) return;
    b.g.classList.toggle('above', above);
    b.rect.setAttribute('x', x);
    b.rect.setAttribute('width', w > 3 ? w - 0.7 : w);
    var name = fit(b.name, w);
    if (!b.text && name) b.text = svg('text', { dx: 4, y: b.depth * ROW + 12 }, b.g);
    if (!b.text) return;
    b.text.textContent = name;
    b.text.setAttribute('x', x);
  });
  head(width);
  status();
}

// head lays out what is above the boxes.
function head(width) {
  var narrow = width < NARROW, y = LEGEND_Y + (narrow ? 28 : 0), x = MARGIN;
  var field = byId('find'), room = width - 2 * MARGIN - (narrow ? 0 : 260);
  byId('title').firstChild.data = cut(title, Math.floor(room / 10));
  byId('sub').firstChild.data = cut(sub, Math.floor(room / 6.2));
  field.setAttribute('x', narrow ? MARGIN : width - MARGIN - 240);
  field.setAttribute('y', narrow ? 56 : 10);
  reset.setAttribute('x', narrow ? MARGIN + 250 : width - MARGIN - 250);
  reset.setAttribute('y', narrow ? 74 : 28);
  reset.setAttribute('text-anchor', narrow ? 'start' : 'end');
  matched.setAttribute('x', width - MARGIN);
  matched.setAttribute('y', narrow ? 28 : 52);
  Array.from(byId('legend').children).forEach(function (chip) {
    var w = 30 + Array.from(chip.querySelector('text').textContent).length * CHAR;
    if (x > MARGIN && x + w > width - MARGIN) {
      x = MARGIN;
      y += LEGEND;
    }
    chip.setAttribute('transform', 'translate(' + x + ',' + y + ')');
    x += w;
  });
  frames.setAttribute('y', y + LEGEND + 4);
  root.setAttribute('height', Math.max(y + LEGEND + 4 + Number(frames.getAttribute('height')) + 8 + BAR, window.innerHeight));
  stick();
}

// stick keeps the line of details at the lower edge of the window.
function stick() {
  bar.setAttribute('transform', 'translate(0,' + (window.scrollY + window.innerHeight - BAR) + ')');
}

function say(b) {
  details.textContent = cut(b.title.replace('\n', ' — '), Math.floor((Number(frames.getAttribute('width'))) / CHAR));
}

function status() {
  say(zoomed);
  reset.textContent = zoomed === all ? '' : 'reset zoom';
  matched.textContent = query ? percent(covered(boxes, zoomed), zoomed.value) + ' matched' : '';
}

function zoom(b) {
  zoomed = b;
  draw();
}

function search(text) {
  var test = text ? pattern(text) : null;
  query = text;
  boxes.forEach(function (b) {
    b.hit = !!test && test(b.name);
    b.g.classList.toggle('hit', b.hit);
  });
  status();
}

function controls() {
  var field = svg('foreignObject', { id: 'find', width: 240, height: 30 }, root);
  input = document.createElementNS('http://www.w3.org/1999/xhtml', 'input');
  input.setAttribute('type', 'search');
  input.setAttribute('placeholder', 'search: text or regular expression');
  input.setAttribute('aria-label', 'search');
  field.appendChild(input);
  reset = svg('text', { id: 'reset', 'class': 'button' }, root);
  matched = svg('text', { id: 'matched', 'text-anchor': 'end' }, root);
  input.addEventListener('input', function () { search(input.value); });
  reset.addEventListener('click', function () { zoom(all); });
}

function listen() {
  boxes.forEach(function (b) {
    b.g.addEventListener('click', function () { zoom(b); });
    b.g.addEventListener('mouseenter', function () { say(b); });
    b.g.addEventListener('mouseleave', function () { say(zoomed); });
  });
  var legend = byId('legend'), level = Number(legend.getAttribute('data-level'));
  var roots = boxes.filter(function (b) { return b.depth === level; });
  Array.from(legend.querySelectorAll('.root')).forEach(function (chip, i) {
    chip.addEventListener('click', function () { if (roots[i]) zoom(roots[i]); });
  });
  window.addEventListener('resize', draw);
  window.addEventListener('scroll', stick);
  window.addEventListener('keydown', key);
}

function key(e) {
  var find = e.key === '/' && e.target !== input || (e.ctrlKey || e.metaKey) && e.key === 'f';
  if (find) {
    e.preventDefault();
    input.focus();
    input.select();
  } else if (e.key === 'Escape') {
    if (input.value) {
      input.value = '';
      search('');
    } else {
      zoom(all);
    }
    input.blur();
  }
}

controls();
listen();
draw();
})();
