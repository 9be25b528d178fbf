// Charts that answer to the pointer, drawn from the numbers beside each figure.
(() => {
  'use strict';
  const NS = 'http://www.w3.org/2000/svg';
  const INK = '#222222', GREY = '#555555', GRID = '#e2e2e2';
  const looks = JSON.parse(document.getElementById('looks').textContent);
  const groups = new Map();

  function add(e, attributes, parent, text) {
    for (const key in attributes) e.setAttribute(key, attributes[key]);
    if (text !== undefined) e.textContent = text;
    if (parent) parent.append(e);
    return e;
  }
  const svg = (name, ...rest) => add(document.createElementNS(NS, name), ...rest);
  const html = (name, ...rest) => add(document.createElement(name), ...rest);

  // ---- numbers ----

  function significant(v, digits) {
    if (v === 0) return '0';
    const size = Math.abs(v);
    if (size >= 1e7 || size < 1e-4) return v.toExponential(digits - 1).replace(/\.?0+e\+?/, 'e').replace('-', '−');
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    let text = v.toFixed(places);
    if (places > 0) text = text.replace(/\.?0+$/, '');
    return text.replace('-', '−');
  }

  function short(v) {
    const size = Math.abs(v);
    if (size < 1e4 || size >= 1e18) return significant(v, 4);
    const power = Math.floor(Math.log10(size) / 3 + 1e-9);
    return significant(v / 10 ** (3 * power), 4) + ['', 'k', 'M', 'G', 'T', 'P'][power];
  }

  const reading = (v, axis) => short(v / axis.div) + (axis.unit ? ' ' + axis.unit : '');

  function step(span, count) {
    const rough = span / count, power = 10 ** Math.floor(Math.log10(rough)), times = rough / power;
    return (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10) * power;
  }

  // Ticks of a view [lo, hi]: [[value, label or ''], ...].
  function ticks(axis, [lo, hi], count) {
    const list = [];
    if (axis.log && hi / lo > 5) {
      const from = Math.floor(Math.log10(lo)), to = Math.ceil(Math.log10(hi));
      const every = Math.max(1, Math.ceil((to - from) / count)), dense = Math.log10(hi / lo) <= count / 2.5;
      for (let p = from; p <= to; p++) {
        for (let m = 1; m < 10; m++) {
          const v = m * 10 ** p;
          if (v < lo * 0.999999 || v > hi * 1.000001 || (m > 1 && to - from > 6)) continue;
          const labelled = dense ? m === 1 || m === 2 || m === 5 : m === 1 && p % every === 0;
          list.push([v, labelled ? short(v / axis.div) : '']);
        }
      }
      return list;
    }
    const s = step(hi - lo, count), largest = Math.max(Math.abs(lo), Math.abs(hi)) / axis.div;
    const power = largest >= 1e5 && largest < 1e18 ? Math.floor(Math.log10(largest) / 3) : 0;
    const by = axis.div * 10 ** (3 * power), letter = ['', 'k', 'M', 'G', 'T', 'P'][power];
    const places = Math.max(0, -Math.floor(Math.log10(s / by * 1.000001)));
    for (let i = Math.ceil(lo / s - 1e-6), n = 0; i * s <= hi + s * 1e-6 && n < 50; i++, n++) {
      const v = i * s;
      let label = (v / by).toFixed(Math.min(places, 12)).replace('-', '−') + letter;
      if (i === 0) label = '0';
      else if (places > 6 || Math.abs(v / by) >= 1e9) label = significant(v / by, Math.min(15, Math.max(1, 1 + Math.floor(Math.log10(Math.abs(v))) - Math.floor(Math.log10(s)))));
      list.push([v, label]);
    }
    return list;
  }

  // The range of values that suits what is seen: as the drawn charts choose it.
  function fit(axis, lo, hi) {
    if (axis.log) {
      const round = (v, up) => {
        const one = 10 ** Math.floor(Math.log10(v) + 1e-9), steps = [1, 2, 5, 10].map(m => m * one);
        return up ? steps.find(t => t >= v * 0.999999) : steps.reverse().find(t => t <= v * 1.000001);
      };
      let a = round(lo, false), b = round(hi, true);
      if (b / a < 1.5) { a /= 2; b *= 2; }
      return [a, b];
    }
    const near = (a, b) => a <= 0.6 * b || b - a <= 1e-12 * b;
    if (lo >= 0 && near(lo, hi)) lo = 0;
    else if (hi <= 0 && near(-hi, -lo)) hi = 0;
    if (hi - lo <= 1e-12 * Math.max(Math.abs(lo), Math.abs(hi))) {
      const room = Math.abs(lo) * 0.05 || 0.5;
      lo -= room;
      hi += room;
    }
    for (let n = 0; n < 3; n++) {
      const s = step(hi - lo, 6);
      lo = Math.min(lo, Math.floor(lo / s + 1e-9) * s);
      hi = Math.max(hi, Math.ceil(hi / s - 1e-9) * s);
    }
    return [lo, hi];
  }

  // Position of the last x that is not beyond v; -1 if all are.
  function last(xs, v) {
    let a = 0, b = xs.length, m;
    while (a < b) if (xs[m = (a + b) >> 1] <= v) a = m + 1; else b = m;
    return a - 1;
  }

  const within = (v, a, b) => Math.max(a, Math.min(b, v));
  const place = (axis, [lo, hi], v) => axis.log ? Math.log(v / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo);
  const value = (axis, [lo, hi], part) => axis.log ? lo * (hi / lo) ** part : lo + (hi - lo) * part;
  const caption = axis => axis.label && axis.unit ? `${axis.label} (${axis.unit})` : axis.label || axis.unit;

  const stroke = line => ({ fill: 'none', stroke: line.color, 'stroke-width': 1.8, 'stroke-linejoin': 'round',
    'stroke-dasharray': line.style === 'dashed' ? line.dash : 'none' });
  const paint = (shape, color) => ({
    filled: { fill: color, stroke: '#fff', 'stroke-width': 0.8 },
    hollow: { fill: '#fff', stroke: color, 'stroke-width': 1.6 },
    strokes: { fill: 'none', stroke: color, 'stroke-width': 1.8 },
  }[looks.paints[shape]]);

  // ---- one chart ----

  function start(host, spec) {
    const home = { x: [spec.x.lo, spec.x.hi], y: [spec.y.lo, spec.y.hi] };
    let view = { x: home.x, y: home.y };
    const hidden = new Set();
    let plot = null, dots = null, width = 0;

    const live = html('div', { class: 'live' });
    if (spec.title) html('h3', {}, live, spec.title);
    const legend = html('div', { class: 'legend' }, live);
    const values = spec.lines.map((line, i) => {
      const button = html('button', { type: 'button', 'aria-pressed': 'true', title: line.name + ': click to hide or show' }, legend);
      const swatch = svg('svg', { width: 24, height: 14, 'aria-hidden': 'true' }, button);
      if (line.style !== 'points') svg('path', { d: 'M0 7h24', ...stroke(line) }, swatch);
      if (line.style === 'points' || line.marked) svg('path', { d: 'M12 7' + looks.shapes[line.shape], ...paint(line.shape, line.color) }, swatch);
      html('span', { class: 'name' }, button, line.name || 'series ' + (i + 1));
      button.addEventListener('click', () => {
        if (!hidden.delete(i)) hidden.add(i);
        button.setAttribute('aria-pressed', String(!hidden.has(i)));
        refit();
        draw();
      });
      return html('span', { class: 'value' }, button);
    });
    const canvas = html('div', {}, live), status = html('div', { class: 'status' }, live);
    const message = html('span', {}, status);
    const reset = html('button', { type: 'button', hidden: '' }, status, 'reset zoom');
    reset.addEventListener('click', () => zoomAll(null));
    host.prepend(live);
    host.classList.add('on');

    const group = spec.link && groups.get(spec.link) || [];
    if (spec.link) groups.set(spec.link, group);
    group.push({ cursor, zoom });
    const linked = f => group.forEach(f);
    const shown = f => spec.lines.forEach((line, i) => { if (!hidden.has(i)) f(line, i); });
    const zoomAll = to => linked(chart => chart.zoom(to));

    const px = v => plot.left + place(spec.x, view.x, v) * plot.width;
    const py = v => plot.bottom - place(spec.y, view.y, v) * plot.height;

    // to: {x: [a, b], y: [a, b] or nothing}, or null for everything.
    function zoom(to) {
      view = to ? { x: to.x, y: to.y || view.y } : { x: home.x, y: home.y };
      if (!to || !to.y) refit();
      reset.hidden = !to;
      draw();
    }

    // Chooses the range of y by what is shown.
    function refit() {
      if (!spec.runs || spec.y.fixed) return;
      if (view.x === home.x && hidden.size === 0) { view.y = home.y; return; }
      let lo = Infinity, hi = -Infinity;
      const take = v => { lo = Math.min(lo, v); hi = Math.max(hi, v); };
      shown((line, i) => line.x.forEach((x, k) => {
        if (line.y[k] !== null && x >= view.x[0] && x <= view.x[1]) take(line.y[k]);
      }));
      for (const mark of spec.marks) if (mark.at[0] === null) take(mark.at[1]);
      if (lo <= hi) view.y = fit(spec.y, lo, hi);
    }

    function pathOf(line) {
      let from = 0, to = line.x.length;
      if (spec.runs) {
        from = Math.max(0, last(line.x, view.x[0]) - 1);
        to = Math.min(to, last(line.x, view.x[1]) + 3);
      }
      let d = '', pen = false, level = 0, alone = '';
      for (let k = from; k < to; k++) {
        if (line.y[k] === null) { pen = false; continue; }
        const x = within(px(line.x[k]), -1e5, 1e5).toFixed(1), y = within(py(line.y[k]), -1e5, 1e5).toFixed(1);
        if (!pen && (k + 1 >= line.x.length || line.y[k + 1] === null)) alone += 'M' + x + ' ' + y + 'h0';
        d += !pen ? 'M' + x + ' ' + y : line.style === 'step' ? 'L' + x + ' ' + level + 'V' + y : 'L' + x + ' ' + y;
        pen = true;
        level = y;
      }
      return [d, alone];
    }

    function markersOf(line, i) {
      let d = '';
      const every = 110, few = line.x.length <= 40;
      let next = plot.left + every * (i + 0.5) / spec.lines.length;
      const stride = spec.runs ? 1 : Math.max(1, Math.floor(line.x.length / 12));
      for (let k = 0; k < line.x.length; k++) {
        if (line.y[k] === null) continue;
        const x = px(line.x[k]);
        if (x < plot.left - 8 || x > plot.right + 8) continue;
        if (!few && line.style !== 'points') {
          if (spec.runs ? x < next : k % stride !== Math.floor(stride * (i + 0.5) / spec.lines.length)) continue;
          next += (Math.floor((x - next) / every) + 1) * every;
        }
        d += 'M' + x.toFixed(1) + ' ' + py(line.y[k]).toFixed(1) + looks.shapes[line.shape];
      }
      return d;
    }

    function draw() {
      width = canvas.clientWidth || host.clientWidth || 600;
      const height = spec.runs ? (width < 560 ? 260 : 310) : Math.min(460, Math.max(300, width * 0.6));
      const root = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, 'font-size': 12, role: 'img', 'aria-label': spec.title });
      plot = { top: 28, bottom: height - 40, right: width - 18 };
      plot.height = plot.bottom - plot.top;
      const yTicks = ticks(spec.y, view.y, Math.max(2, Math.round(plot.height / 42)));
      plot.left = Math.max(50, 16 + 7.4 * Math.max(...yTicks.map(t => t[1].length)));
      plot.width = plot.right - plot.left;
      let count = Math.max(2, Math.min(10, Math.round(plot.width / 78))), xTicks;
      do xTicks = ticks(spec.x, view.x, count);
      while (xTicks.filter(t => t[1]).reduce((all, t) => all + t[1].length * 7.4 + 10, 0) > plot.width && --count > 1);

      const clip = () => svg('svg', { x: plot.left - 4, y: plot.top - 4, width: plot.width + 8, height: plot.height + 8,
        viewBox: `${plot.left - 4} ${plot.top - 4} ${plot.width + 8} ${plot.height + 8}`, overflow: 'hidden' }, root);
      const bands = clip();
      for (const band of spec.bands) {
        const along = band.axis === 'x', axis = spec[band.axis], range = view[band.axis];
        const edge = (v, open) => v === null ? open : axis.log && v <= 0 ? 0 : within(place(axis, range, v), 0, 1);
        const a = edge(band.at[0], 0), b = edge(band.at[1], 1);
        band.label = null;
        if (a >= b) continue;
        const box = along ? { x: plot.left + a * plot.width, width: (b - a) * plot.width, y: plot.top, height: plot.height, fill: '#efece4' }
          : { y: plot.bottom - b * plot.height, height: (b - a) * plot.height, x: plot.left, width: plot.width, fill: '#e4edf5' };
        svg('rect', box, bands);
        band.label = along ? [box.x + 4, plot.bottom - 6] : [plot.left + 5, box.y + 12];
      }
      svg('text', { x: 10, y: 14, fill: GREY }, root, caption(spec.y));
      svg('text', { x: (plot.left + plot.right) / 2, y: height - 6, fill: GREY, 'text-anchor': 'middle' }, root, caption(spec.x));
      const grid = (d, label) => svg('path', { d, stroke: label ? GRID : '#f1f1f1' }, root);
      for (const [v, label] of yTicks) {
        grid(`M${plot.left} ${py(v)}H${plot.right}`, label);
        svg('text', { x: plot.left - 7, y: py(v) + 4, fill: INK, 'text-anchor': 'end' }, root, label);
      }
      for (const [v, label] of xTicks) {
        grid(`M${px(v)} ${plot.top}V${plot.bottom}`, label);
        svg('text', { x: Math.min(px(v), width - label.length * 3.7 - 2), y: plot.bottom + 17, fill: INK, 'text-anchor': 'middle' }, root, label);
      }
      svg('path', { d: `M${plot.left} ${plot.top}V${plot.bottom}H${plot.right}`, fill: 'none', stroke: GREY }, root);

      const inner = clip();
      shown((line, i) => {
        if (line.style !== 'points') {
          const [d, alone] = pathOf(line);
          svg('path', { d, ...stroke(line) }, inner);
          if (alone) svg('path', { d: alone, ...stroke(line), 'stroke-width': 4, 'stroke-linecap': 'round', 'stroke-dasharray': 'none' }, inner);
        }
        if (line.style === 'points' || line.marked) svg('path', { d: markersOf(line, i), ...paint(line.shape, line.color) }, inner);
      });
      drawMarks(inner, root);
      for (const band of spec.bands) if (band.label) write(root, band.label[0], band.label[1], 'start', band.text, GREY);
      dots = svg('g', { 'pointer-events': 'none' }, inner);
      listen(root);
      canvas.replaceChildren(root);
      cursor(null);
    }

    function write(root, x, y, anchor, text, fill) {
      const room = Math.floor(plot.width * 0.6 / 6.5), cut = text.length > room ? text.slice(0, room) + '…' : text;
      svg('text', { x, y, fill: fill || INK, 'font-size': 11, 'text-anchor': anchor, 'paint-order': 'stroke', stroke: '#fff',
        'stroke-width': 3.5, 'stroke-linejoin': 'round', 'pointer-events': 'none' }, root, cut);
    }

    function drawMarks(inner, root) {
      const dashed = { stroke: INK, 'stroke-width': 1.5, 'stroke-dasharray': '6 3', fill: 'none' };
      const levels = [];
      for (const { at: [u, v], text } of spec.marks) {
        const x = u === null ? plot.right : px(u), y = v === null ? plot.top : py(v);
        if (x < plot.left - 1 || x > plot.right + 1 || y < plot.top - 1 || y > plot.bottom + 1) continue;
        const side = x + 10 + text.length * 6.5 > plot.right ? -1 : 1, anchor = side < 0 ? 'end' : 'start';
        if (u === null || v === null) svg('path', { d: u === null ? `M${plot.left} ${y}H${plot.right}` : `M${x} ${plot.top}V${plot.bottom}`, ...dashed }, inner);
        if (u === null) levels.push([y, text]);
        else if (v === null) write(root, x + 5 * side, plot.top + 11, anchor, text);
        else {
          svg('path', { d: `M${x} ${y}m0-6l6 6l-6 6l-6-6z`, fill: '#fff', stroke: INK, 'stroke-width': 2 }, inner);
          write(root, x + 6 * side, y > plot.top + 16 ? y - 8 : y + 17, anchor, text);
        }
      }
      let before = plot.top - 4;
      for (const [y, text] of levels.sort((a, b) => a[0] - b[0])) {
        before = Math.max(y - 5 < plot.top + 9 ? y + 13 : y - 5, before + 13);
        write(root, plot.right - 4, before, 'end', text);
      }
    }

    // ---- pointing ----

    const clear = () => { dots.replaceChildren(); values.forEach(e => { e.textContent = ''; }); };

    const dot = (line, k) => svg('circle', { cx: px(line.x[k]), cy: py(line.y[k]), r: 4, fill: '#fff', stroke: line.color, 'stroke-width': 2 }, dots);

    // Shows all series at an x; nothing at null.
    function cursor(at) {
      if (!dots) return;
      clear();
      if (at === null) { message.textContent = 'Point to read, drag to zoom, double-click to reset'; return; }
      message.textContent = reading(at, spec.x);
      if (at < view.x[0] || at > view.x[1]) return;
      svg('path', { d: `M${px(at)} ${plot.top}V${plot.bottom}`, stroke: GREY, 'stroke-dasharray': '3 2' }, dots);
      const slack = (view.x[1] - view.x[0]) * 0.01;
      shown((line, i) => {
        let k = last(line.x, at);
        if (line.style !== 'step' && k + 1 < line.x.length && (k < 0 || line.x[k + 1] - at < at - line.x[k])) k++;
        const outside = k < 0 || at < line.x[0] - slack || at > line.x[line.x.length - 1] + slack;
        if (outside || line.y[k] === null) { values[i].textContent = '–'; return; }
        values[i].textContent = reading(line.y[k], spec.y);
        dot(line, k);
      });
    }

    // Shows the point nearest to a place, for lines that turn.
    function nearest(x, y) {
      clear();
      let best = 40 * 40, found = null;
      shown((line, i) => line.x.forEach((u, k) => {
        const away = line.y[k] === null ? best : (px(u) - x) ** 2 + (py(line.y[k]) - y) ** 2;
        if (away < best) { best = away; found = [line, k, i]; }
      }));
      message.textContent = '';
      if (!found) return;
      const [line, k, i] = found;
      message.textContent = `${spec.x.label} ${reading(line.x[k], spec.x)}, ${spec.y.label} ${reading(line.y[k], spec.y)}`;
      values[i].textContent = '◂';
      dot(line, k);
    }

    function listen(root) {
      let from = null, box = null;
      const spot = e => {
        const r = root.getBoundingClientRect();
        return [within(e.clientX - r.left, plot.left, plot.right), within(e.clientY - r.top, plot.top, plot.bottom)];
      };
      const at = x => value(spec.x, view.x, (x - plot.left) / plot.width);
      const show = ([x, y]) => spec.runs ? linked(chart => chart.cursor(at(x))) : nearest(x, y);
      const drop = () => { from = null; if (box) box.remove(); box = null; };
      root.addEventListener('pointerdown', e => {
        if (e.button !== 0) return;
        from = spot(e);
        root.setPointerCapture(e.pointerId);
        show(from);
      });
      root.addEventListener('pointermove', e => {
        const to = spot(e);
        show(to);
        if (!from || Math.abs(to[0] - from[0]) < 6) { if (box) box.remove(); box = null; return; }
        if (!box) box = svg('rect', { fill: '#006db0', 'fill-opacity': 0.15, stroke: '#006db0' }, root);
        const y = spec.runs ? [plot.top, plot.bottom] : [Math.min(from[1], to[1]), Math.max(from[1], to[1])];
        const set = { x: Math.min(from[0], to[0]), width: Math.abs(to[0] - from[0]), y: y[0], height: y[1] - y[0] };
        for (const key in set) box.setAttribute(key, set[key]);
      });
      root.addEventListener('pointerup', e => {
        const to = spot(e), begin = from;
        drop();
        if (!begin || Math.abs(to[0] - begin[0]) < 6) return;
        const x = [at(Math.min(to[0], begin[0])), at(Math.max(to[0], begin[0]))];
        // Closer than this, numbers on the axis would no longer differ.
        if (!(x[1] - x[0] > 1e-9 * Math.max(Math.abs(x[0]), Math.abs(x[1])))) return;
        if (spec.runs) { zoomAll({ x }); return; }
        const up = y => value(spec.y, view.y, (plot.bottom - y) / plot.height);
        if (Math.abs(to[1] - begin[1]) >= 6) zoomAll({ x, y: [up(Math.max(to[1], begin[1])), up(Math.min(to[1], begin[1]))] });
      });
      root.addEventListener('pointercancel', drop);
      root.addEventListener('pointerleave', () => { if (!from) linked(chart => chart.cursor(null)); });
      root.addEventListener('dblclick', () => zoomAll(null));
    }

    draw();
    new ResizeObserver(() => { if (canvas.clientWidth && canvas.clientWidth !== width) draw(); }).observe(canvas);
  }

  for (const host of document.querySelectorAll('figure.chart')) {
    const spec = JSON.parse(host.querySelector('script.data').textContent);
    if (spec) start(host, spec);
  }

  // Folded text is printed too.
  const folded = document.querySelectorAll('details:not([open])');
  addEventListener('beforeprint', () => folded.forEach(e => { e.open = true; }));
  addEventListener('afterprint', () => folded.forEach(e => { e.open = false; }));
})();
