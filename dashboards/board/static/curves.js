"use strict";
// Draws curves of chosen runs, which only the reader's browser knows.

const drawing = {};

drawing.space = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;

drawing.shape = (name, attributes, text = "") => {
  const made = document.createElementNS(drawing.space, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
};

drawing.ticks = (low, high) => {
  const rough = (high - low) / 5 || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, index) => (first + index) * step);
};

drawing.scale = (values, start, end, mayBeLog) => {
  // Logarithmic where positive values span so much that a linear scale would hide most of them.
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const isLog = mayBeLog && least > 0 && most >= 30 * least;
  const to = isLog ? Math.log10 : (value) => value;
  const [low, high] = [to(least), to(most)];
  const room = 0.04 * (high - low) || 0.5;
  const place = (value) => start + (end - start) * (to(value) - low + room) / (high - low + 2 * room);
  const decades = () => drawing.ticks(Math.ceil(low), Math.floor(high)).filter(Number.isInteger).map((n) => 10 ** n);
  return Object.assign(place, { ticks: isLog ? decades() : drawing.ticks(low, high) });
};

drawing.chart = (curves, label, mayBeLog) => {
  const [width, height, left, bottom] = [960, 340, 72, 296];
  const points = curves.flatMap(({ points: found }) => found);
  const y = drawing.scale(points.map(([, value]) => value), bottom, 14, mayBeLog);
  const x = drawing.scale(points.map(([step]) => step), left, width - 16, false);
  const svg = drawing.shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart wide-chart", role: "img",
    "aria-label": `${label} over batches` });
  const text = (at, words, more = {}) => svg.append(drawing.shape("text", { ...at, ...more }, words));
  const told = (value) => String(Number(value.toPrecision(6))).replace("-", "−");
  for (const tick of y.ticks) {
    svg.append(drawing.shape("line", { class: "rule", x1: left, x2: width - 16, y1: y(tick), y2: y(tick) }));
    text({ x: left - 7, y: y(tick) + 4 }, told(tick), { "text-anchor": "end" });
  }
  for (const tick of x.ticks) text({ x: x(tick), y: bottom + 18 }, told(tick), { "text-anchor": "middle" });
  text({ x: width / 2, y: height - 6 }, "batches", { class: "label", "text-anchor": "middle" });
  curves.forEach(({ side, name, points: found }) => {
    const places = found.map(([a, b]) => `${x(a).toFixed(1)} ${y(b).toFixed(1)}`);
    const path = drawing.shape("path", { d: `M${places.join("L")}` });
    const line = drawing.shape("g", { class: `line run${(side.charCodeAt(0) - 65) % 8}` });
    const [step, value] = found.at(-1);
    line.append(drawing.shape("title", {}, `${side}: ${name}`), path,
      drawing.shape("text", { x: x(step) - 4, y: y(value) - 5, "text-anchor": "end", class: "halo" }, side));
    svg.append(line);
  });
  return svg;
};
