// Drawings of the page: curves, and lanes of boxes that can be moved and zoomed (one step, the plan).
'use strict';

const Draw = (() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const tip = () => document.getElementById('tip');

  function showTip(text, x, y) {
    const box = tip();
    box.textContent = text;
    box.hidden = false;
    const w = box.offsetWidth, h = box.offsetHeight;
    box.style.left = Math.max(4, Math.min(x + 14, innerWidth - w - 8)) + 'px';
    box.style.top = (y + h + 24 > innerHeight ? y - h - 10 : y + 16) + 'px';
  }
  const hideTip = () => { tip().hidden = true; };

  const svg = (name, attributes) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  function number(v) {
    if (v === null || v === undefined || !isFinite(v)) return '–';
    const a = Math.abs(v);
    if (a >= 1e9) return (v / 1e9).toFixed(2) + 'G';
    if (a >= 1e6) return (v / 1e6).toFixed(2) + 'M';
    if (a >= 1e5) return (v / 1e3).toFixed(0) + 'k';
    if (a >= 1e4) return (v / 1e3).toFixed(1) + 'k';
    if (a >= 100 || Number.isInteger(v)) return v.toFixed(0);
    return a >= 1 ? v.toFixed(2) : a >= 0.001 || a === 0 ? v.toFixed(4) : v.toExponential(2);
  }

  /// Puts a curve into `box`: points are [x, y], ordered by x; y may be null.
  function curve(box, title, points, colour, xname) {
    const good = points.filter((p) => p[1] !== null && isFinite(p[1]));
    const last = good.length ? good[good.length - 1][1] : null;
    box.className = 'curve';
    box.innerHTML = '';
    const head = document.createElement('h3');
    const name = document.createElement('span'), value = document.createElement('b');
    name.textContent = title;
    value.textContent = number(last);
    head.append(name, value);
    const W = 320, H = 110, left = 40, bottom = 16;
    const picture = svg('svg', { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: 'none', role: 'img' });
    picture.setAttribute('aria-label', title + ' ' + number(last));
    box.append(head, picture);
    if (good.length < 1) return;
    const xs = good.map((p) => p[0]);
    // A few outliers at the start shall not press the rest flat.
    const sorted = good.map((p) => p[1]).sort((a, b) => a - b);
    const at = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
    let low = at(0.01), high = at(0.99);
    const x0 = xs[0], x1 = xs[xs.length - 1] > x0 ? xs[xs.length - 1] : x0 + 1;
    if (high - low < 1e-9 * Math.max(1, Math.abs(high))) { high += Math.abs(high) * 0.05 + 1e-6; low -= Math.abs(low) * 0.05 + 1e-6; }
    const X = (x) => left + (x - x0) / (x1 - x0) * (W - left - 6);
    const Y = (y) => Math.max(3, Math.min(H - bottom, 6 + (high - y) / (high - low) * (H - bottom - 8)));
    for (const y of [low, (low + high) / 2, high]) {
      picture.append(svg('line', { x1: left, x2: W - 6, y1: Y(y), y2: Y(y), stroke: css('--line'), 'stroke-width': 0.6 }));
      const label = svg('text', { x: left - 4, y: Y(y) + 3, 'text-anchor': 'end', 'font-size': 9, fill: css('--soft') });
      label.textContent = number(y);
      picture.append(label);
    }
    for (const [x, anchor] of [[x0, 'start'], [x1, 'end']]) {
      const label = svg('text', { x: X(x), y: H - 4, 'text-anchor': anchor, 'font-size': 9, fill: css('--soft') });
      label.textContent = xname + ' ' + number(x);
      picture.append(label);
    }
    const path = good.map((p, i) => (i ? 'L' : 'M') + X(p[0]).toFixed(1) + ' ' + Y(p[1]).toFixed(1)).join('');
    picture.append(svg('path', { d: path, fill: 'none', stroke: colour, 'stroke-width': 1.6, 'vector-effect': 'non-scaling-stroke' }));
    if (good.length === 1) picture.append(svg('circle', { cx: X(xs[0]), cy: Y(good[0][1]), r: 2.5, fill: colour }));
    picture.onmousemove = (event) => {
      const r = picture.getBoundingClientRect();
      const x = x0 + ((event.clientX - r.left) / r.width * W - left) / (W - left - 6) * (x1 - x0);
      let best = good[0];
      for (const p of good) if (Math.abs(p[0] - x) < Math.abs(best[0] - x)) best = p;
      showTip(`${xname} ${number(best[0])}\n${title} ${best[1].toPrecision(5)}`, event.clientX, event.clientY);
    };
    picture.onmouseleave = hideTip;
  }

  /// Lanes of boxes with arrows. lanes: names; boxes: {lane, begin, end, colour, label, tip}; arrows: {from:
  /// {lane, at}, to: {lane, at}, colour}. Times in microseconds.
  class Lanes {
    constructor(host, lanes, boxes, arrows) {
      this.lanes = lanes;
      this.boxes = boxes.sort((a, b) => a.lane - b.lane || a.begin - b.begin);
      this.arrows = arrows;
      this.row = 26;
      this.left = 104;
      this.low = Math.min(...boxes.map((b) => b.begin));
      this.high = Math.max(...boxes.map((b) => b.end));
      if (!(this.high > this.low)) this.high = this.low + 1;
      this.all();
      host.innerHTML = '';
      this.canvas = document.createElement('canvas');
      host.append(this.canvas);
      this.listen();
      new ResizeObserver(() => this.draw()).observe(host);
      this.draw();
    }
    all() { const pad = (this.high - this.low) * 0.01; this.from = this.low - pad; this.to = this.high + pad; }
    x(t) { return this.left + (t - this.from) / (this.to - this.from) * (this.width - this.left - 8); }
    t(x) { return this.from + (x - this.left) / (this.width - this.left - 8) * (this.to - this.from); }

    listen() {
      const c = this.canvas;
      let drag = null;
      c.onmousedown = (e) => { drag = { x: e.offsetX, from: this.from, to: this.to }; };
      addEventListener('mouseup', () => { drag = null; });
      c.onmousemove = (e) => {
        if (drag) {
          const by = (e.offsetX - drag.x) / (this.width - this.left - 8) * (drag.to - drag.from);
          this.from = drag.from - by;
          this.to = drag.to - by;
          return this.draw();
        }
        const box = this.find(e.offsetX, e.offsetY);
        this.hover = box;
        this.draw();
        if (box) showTip(box.tip, e.clientX, e.clientY); else hideTip();
      };
      c.onmouseleave = () => { this.hover = null; hideTip(); this.draw(); };
      c.ondblclick = () => { this.all(); this.draw(); };
      c.addEventListener('wheel', (e) => {
        e.preventDefault();
        const t = this.t(e.offsetX), by = Math.exp(e.deltaY * 0.0015);
        this.from = t - (t - this.from) * by;
        this.to = t + (this.to - t) * by;
        this.draw();
      }, { passive: false });
    }
    find(x, y) {
      const lane = Math.floor((y - 18) / this.row);
      let found = null;
      for (const b of this.boxes) {
        if (b.lane !== lane) continue;
        if (x >= this.x(b.begin) - 1 && x <= Math.max(this.x(b.end), this.x(b.begin) + 2) + 1) found = b;
      }
      return found;
    }
    draw() {
      const c = this.canvas, ratio = devicePixelRatio || 1;
      this.width = c.parentElement.clientWidth || 600;
      const height = 18 + this.lanes.length * this.row + 6;
      c.width = this.width * ratio;
      c.height = height * ratio;
      c.style.height = height + 'px';
      const g = c.getContext('2d');
      g.scale(ratio, ratio);
      const text = css('--text'), soft = css('--soft'), line = css('--line');
      g.font = '11px system-ui, "DejaVu Sans", sans-serif';
      const span = this.to - this.from;
      let tick = Math.pow(10, Math.floor(Math.log10(span / 6)));
      for (const m of [2, 5, 10]) if (span / tick > 10) tick *= m === 10 ? 2 : m === 5 ? 2.5 : 2;
      g.fillStyle = soft;
      for (let t = Math.ceil(this.from / tick) * tick; t < this.to; t += tick) {
        const x = this.x(t);
        if (x < this.left) continue;
        g.fillRect(x, 16, 1, 3);
        const since = t - this.low;
        g.fillText(Math.abs(since) >= 1000 ? (since / 1000).toFixed(2) + ' ms' : since.toFixed(tick < 1 ? 2 : 0) + ' us', x + 3, 12);
      }
      this.lanes.forEach((name, i) => {
        const y = 18 + i * this.row;
        g.fillStyle = line;
        g.fillRect(0, y, this.width, 1);
        g.fillStyle = text;
        g.fillText(name.length > 15 ? name.slice(0, 14) + '…' : name, 6, y + 17);
      });
      g.save();
      g.beginPath();
      g.rect(this.left, 0, this.width - this.left, height);
      g.clip();
      for (const b of this.boxes) {
        const x = this.x(b.begin), w = Math.max(1.2, this.x(b.end) - x), y = 18 + b.lane * this.row + 3;
        if (x > this.width || x + w < this.left) continue;
        g.globalAlpha = b.faint ? 0.45 : 1;
        g.fillStyle = b.colour;
        g.fillRect(x, y, w, this.row - 6);
        g.globalAlpha = 1;
        if (b === this.hover || b.bold) {
          g.strokeStyle = text;
          g.lineWidth = b === this.hover ? 2 : 1.4;
          g.strokeRect(x + 0.5, y + 0.5, Math.max(1, w - 1), this.row - 7);
        }
        if (w > 34) {
          g.fillStyle = b.faint ? text : '#fff';
          const most = Math.floor((w - 6) / 6);
          g.fillText(b.label.length > most ? b.label.slice(0, Math.max(1, most - 1)) + '…' : b.label, x + 4, y + 14);
        }
      }
      g.lineWidth = 1;
      const few = this.arrows.length <= 400;
      for (const a of this.arrows) {
        const mine = this.hover && (this.hover.id === a.from.id || this.hover.id === a.to.id) && a.from.id !== undefined;
        if (!few && !mine) continue;
        const x1 = this.x(a.from.at), x2 = this.x(a.to.at);
        if (Math.max(x1, x2) < this.left || Math.min(x1, x2) > this.width) continue;
        const y1 = 18 + (a.from.lane + 0.5) * this.row, y2 = 18 + (a.to.lane + 0.5) * this.row;
        g.globalAlpha = mine ? 1 : 0.45;
        g.strokeStyle = mine ? text : soft;
        g.lineWidth = mine ? 2 : 1;
        g.beginPath();
        g.moveTo(x1, y1);
        g.bezierCurveTo((x1 + x2) / 2 + 10, y1, (x1 + x2) / 2 - 10, y2, x2, y2);
        g.stroke();
        g.beginPath();
        g.moveTo(x2, y2);
        g.lineTo(x2 - 5, y2 - 3);
        g.lineTo(x2 - 5, y2 + 3);
        g.fillStyle = g.strokeStyle;
        g.fill();
        g.globalAlpha = 1;
      }
      g.restore();
    }
  }
  return { curve, Lanes, number, css, showTip, hideTip };
})();
