// Draws the time series, sweeps and phase planes of a page with uPlot, from the numbers beside each figure.
(() => {
  'use strict';
  // Mode of uPlot.join: a gap of one line stays a gap between the points of the other lines.
  const NULL_EXPAND = 2;
  const INK = '#222', GREY = '#555', GRID = '#e2e2e2', FAMILY = 'system-ui, "DejaVu Sans", Arial, sans-serif';

  // A number with this many digits and a letter for thousands, as in the drawn charts.
  function short(v, digits) {
    if (v === null || v === undefined) return '–';
    const size = Math.abs(v);
    if (size !== 0 && (size < 1e-4 || size >= 1e18)) return v.toExponential(digits - 1).replace(/\.?0*e\+?/, 'e').replaceAll('-', '−');
    const power = size < 1e4 ? 0 : Math.floor(Math.log10(size) / 3 + 1e-9);
    return String(+(v / 1000 ** power).toPrecision(digits)).replace('-', '−') + ['', 'k', 'M', 'G', 'T', 'P'][power];
  }

  const reading = (v, axis) => v === null || v === undefined ? '–' : short(v / axis.div, 4) + (axis.unit ? ' ' + axis.unit : '');

  const axisOf = (axis, space) => ({
    label: axis.label && axis.unit ? `${axis.label} (${axis.unit})` : axis.label || axis.unit,
    labelFont: `12px ${FAMILY}`, labelSize: 22, font: `12px ${FAMILY}`, stroke: INK, space,
    grid: { stroke: GRID, width: 1 }, ticks: { stroke: GRID, width: 1, size: 6 }, border: { show: true, stroke: GREY, width: 1 },
    size: (u, labels) => axis.side ? 12 + 7.2 * Math.max(4, ...(labels || []).map(text => String(text).length)) : 30,
    // As many digits as tell two neighbours apart.
    values: (u, splits, i, between, step) => splits.map(v => v === null ? '' : short(v / axis.div,
      axis.log ? 4 : Math.min(15, Math.max(4, 1 + Math.ceil(Math.log10(Math.max(...splits.map(Math.abs)) / step)))))),
  });

  // Shaded ranges below the grid, and values for comparison above the lines.
  function decoration(spec) {
    const ratio = devicePixelRatio || 1, px = n => n * ratio;
    const write = (u, text, x, y, align, color) => {
      const room = Math.max(8, Math.floor(u.bbox.width * 0.6 / px(6.5)));
      const shown = text.length > room ? text.slice(0, room) + '…' : text;
      Object.assign(u.ctx, { font: `${px(11)}px ${FAMILY}`, textAlign: align, textBaseline: 'alphabetic', lineJoin: 'round' });
      Object.assign(u.ctx, { strokeStyle: '#fff', lineWidth: px(3.5), fillStyle: color });
      u.ctx.strokeText(shown, x, y);
      u.ctx.fillText(shown, x, y);
    };
    const inside = (u, draw) => {
      const { left, top, width, height } = u.bbox;
      u.ctx.save();
      u.ctx.beginPath();
      // Half a mark may exceed the edge.
      u.ctx.rect(left - px(5), top - px(5), width + px(10), height + px(10));
      u.ctx.clip();
      draw({ left, top, right: left + width, bottom: top + height });
      u.ctx.restore();
    };
    const edge = (u, v, open) => v === null || spec.x.log && v <= 0 ? open : u.valToPos(v, 'x', true);
    const drawClear = u => inside(u, ({ left, top, right, bottom }) => spec.bands.forEach(({ at: [from, to] }) => {
      const a = Math.max(left, edge(u, from, left)), b = Math.min(right, edge(u, to, right));
      u.ctx.fillStyle = '#efece4';
      u.ctx.fillRect(a, top, Math.max(0, b - a), bottom - top);
    }));
    const draw = u => inside(u, box => {
      for (const { at: [from, to], text } of spec.bands) {
        const a = Math.max(box.left, edge(u, from, box.left));
        if (a < box.right && edge(u, to, box.right) > box.left) write(u, text, a + px(4), box.bottom - px(6), 'left', GREY);
      }
      const levels = [];
      for (const { at: [v, w], text } of spec.marks) {
        const x = v === null ? box.right : u.valToPos(v, 'x', true), y = w === null ? box.top : u.valToPos(w, 'y', true);
        if (x < box.left || x > box.right || y < box.top || y > box.bottom) continue;
        const side = x + px(10 + text.length * 6.5) > box.right ? -1 : 1;
        u.ctx.beginPath();
        u.ctx.setLineDash([px(6), px(3)]);
        Object.assign(u.ctx, { strokeStyle: INK, lineWidth: px(1.5) });
        u.ctx.moveTo(v === null ? box.left : x, y);
        u.ctx.lineTo(x, w === null ? box.bottom : y);
        u.ctx.stroke();
        u.ctx.setLineDash([]);
        if (v === null) levels.push([y, text]);
        else write(u, text, x + px(5) * side, box.top + px(11), side < 0 ? 'right' : 'left', INK);
      }
      // From the top down, each label below the label before.
      let before = -Infinity;
      for (const [y, text] of levels.sort((a, b) => a[0] - b[0])) {
        before = Math.max(y < box.top + px(14) ? y + px(13) : y - px(5), before + px(13));
        write(u, text, box.right - px(4), before, 'right', INK);
      }
    });
    return { drawClear: [drawClear], draw: [draw] };
  }

  // The path of a line whose x may turn: uPlot's own paths need a growing x.
  function turning(u, i) {
    const stroke = new Path2D();
    uPlot.orient(u, i, (series, xs, ys, sx, sy, toX, toY, left, top, width, height, moveTo, lineTo) => {
      let isDown = false;
      xs.forEach((v, k) => {
        if (ys[k] !== null) (isDown ? lineTo : moveTo)(stroke, toX(v, sx, width, left), toY(ys[k], sy, height, top));
        isDown = ys[k] !== null;
      });
    });
    return { stroke, fill: null, flags: 2 };
  }

  // The index of the point of a line within 40 pixels of the pointer; null without any.
  function nearest(u, i) {
    const [xs, ys] = u.data[i], { left, top } = u.cursor;
    let best = 1600, found = null;
    for (let k = 0; k < xs.length; k++) {
      const away = ys[k] === null ? best : (u.valToPos(xs[k], 'x') - left) ** 2 + (u.valToPos(ys[k], 'y') - top) ** 2;
      if (away < best) { best = away; found = k; }
    }
    return found;
  }

  function seriesOf(spec, line) {
    const one = { label: line.name, stroke: line.color, width: 1.8, dash: line.dash, value: (u, v) => reading(v, spec.y) };
    if (!spec.runs) {
      // uPlot also calls this without data, for the names of the columns.
      const values = (u, i, k) => Object.fromEntries(['x', 'y'].map((axis, n) => [spec[axis].label || axis, reading(u.data?.[i]?.[n][k], spec[axis])]));
      return { ...one, values, paths: turning, points: { show: false }, facets: [{ scale: 'x', auto: true }, { scale: 'y', auto: true }] };
    }
    return line.style === 'step' ? { ...one, paths: uPlot.paths.stepped({ align: 1 }) } : one;
  }

  function dataOf(spec) {
    if (!spec.runs) return [null, ...spec.lines.map(line => [line.x, line.y])];
    return uPlot.join(spec.lines.map(line => [line.x, line.y]), spec.lines.map(() => [0, NULL_EXPAND]));
  }

  function start(host, spec) {
    const live = document.createElement('div');
    live.className = 'live';
    host.prepend(live);
    host.classList.add('on');
    const data = dataOf(spec), xs = spec.lines.flatMap(line => line.x);
    const least = xs.reduce((a, b) => Math.min(a, b), Infinity), most = xs.reduce((a, b) => Math.max(a, b), -Infinity);
    let whole = true;
    const rangeX = (u, a, b) => {
      whole = a === null || a <= least && b >= most;
      return whole ? [spec.x.lo, spec.x.hi] : [a, b];
    };
    const rangeY = (u, a, b) => {
      const all = whole && u.series.every(one => one.show !== false);
      if (a === null || spec.runs && (spec.y.fixed || all)) return [spec.y.lo, spec.y.hi];
      if (!spec.runs) return whole ? [spec.y.lo, spec.y.hi] : [a, b];
      return spec.y.log ? uPlot.rangeLog(a, b, 10, false) : uPlot.rangeNum(a, b, 0.1, true);
    };
    const size = () => {
      const width = live.clientWidth || host.clientWidth || 600;
      return { width, height: spec.runs ? (width < 560 ? 260 : 310) : Math.min(480, Math.max(300, width * 0.6)) };
    };
    const plot = new uPlot({
      ...size(), title: spec.title, mode: spec.runs ? 1 : 2,
      scales: {
        x: { time: false, distr: spec.x.log ? 3 : 1, range: rangeX },
        y: { distr: spec.y.log ? 3 : 1, range: rangeY },
      },
      axes: [axisOf(spec.x, spec.x.log ? 40 : 60), { ...axisOf({ ...spec.y, side: true }, spec.y.log ? 18 : 36), scale: 'y' }],
      legend: { markers: { width: 0, fill: (u, i) => spec.lines[i - 1].color } },
      series: [{ label: spec.x.label, value: (u, v) => reading(v, spec.x) }, ...spec.lines.map(line => seriesOf(spec, line))],
      cursor: {
        drag: { x: true, y: !spec.runs, dist: 6 },
        ...(spec.runs ? {} : { dataIdx: nearest }),
        ...(spec.link ? { sync: { key: spec.link, scales: ['x', null] } } : {}),
      },
      hooks: decoration(spec),
    }, data, live);
    new ResizeObserver(() => { if (live.clientWidth && live.clientWidth !== plot.width) plot.setSize(size()); }).observe(live);
  }

  const hosts = document.querySelectorAll('figure.chart');
  for (const host of hosts) start(host, JSON.parse(host.querySelector('script.data').textContent));
  const hint = document.createElement('figcaption');
  hint.textContent = 'Point to read, drag to zoom, double-click to reset; click a name to hide its line.';
  hosts[0].querySelector('.live').append(hint);

  // Folded text is printed too.
  const folded = document.querySelectorAll('details:not([open])');
  addEventListener('beforeprint', () => folded.forEach(e => { e.open = true; }));
  addEventListener('afterprint', () => folded.forEach(e => { e.open = false; }));
})();
