"use strict";
// Runs under the pointer, brushing of parallel coordinates, a choice of contours. Without it all of them are shown.

const charts = { brushes: new Map(), picked: "" }; // brushes: shares of an axis's height, by its name

// ---- A run under the pointer stands out in all charts and tables ----------------------------------------------------

charts.light = (run, isLit) => {
  const ofRun = document.querySelectorAll(`[data-run="${CSS.escape(run)}"]`);
  for (const element of ofRun) element.classList.toggle("lit", isLit);
};

for (const [kind, isLit] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
  document.addEventListener(kind, (event) => {
    const run = event.target.closest?.("[data-run]")?.dataset.run;
    if (run) charts.light(run, isLit);
  });
}

// ---- Parallel coordinates: drag along an axis to keep the lines that cross it there, click it to keep all again -----

charts.linesOf = (svg) => [...svg.querySelectorAll("g.line")].map((line) => ({
  line,
  run: line.dataset.run,
  at: new Map(line.querySelector("path").getAttribute("d").slice(1).split("L").map((point) => point.split(" "))
    .map(([x, y]) => [Number(x), Number(y)])),
}));

charts.placeOf = (area) => {
  // Where an axis stands now: a live page may have moved it since it was brushed.
  const [at, top, height] = [area.dataset.at, area.getAttribute("y"), area.getAttribute("height")].map(Number);
  return { at, shareOf: (y) => (y - top) / height, heightOf: (share) => top + share * height };
};

charts.rangeOf = (area) => {
  // The brushed range in pixels, if there is one.
  const { at, heightOf } = charts.placeOf(area);
  const shares = charts.brushes.get(area.dataset.axis);
  return shares && { at, low: heightOf(shares[0]), high: heightOf(shares[1]) };
};

charts.apply = (svg) => {
  const ranges = [...svg.querySelectorAll("rect.brush")].map(charts.rangeOf).filter(Boolean);
  const off = new Set();
  for (const { line, run, at: heights } of svg.lines) {
    const isIn = ranges.every(({ at, low, high }) => heights.get(at) >= low && heights.get(at) <= high);
    line.classList.toggle("off", !isIn);
    if (!isIn) off.add(run);
  }
  const n = svg.lines.length;
  const told = svg.parentElement.querySelector(".brushed");
  told.hidden = !ranges.length;
  told.firstChild.textContent = `${n - off.size} of the ${n} trials that are drawn are within the brushed ranges; `
    + "rows of all others stay. ";
  const table = document.getElementById("trials");
  if (!table) return;
  board.stateOf(table).off = off;
  board.show(table);
};

charts.drawBrush = (svg, area) => {
  const range = charts.rangeOf(area);
  if (area.nextElementSibling?.classList.contains("brushed-range")) area.nextElementSibling.remove();
  if (!range) return;
  const box = document.createElementNS(svg.namespaceURI, "rect");
  const { at, low, high } = range;
  const shape = { class: "brushed-range", x: at - 8, y: low, width: 16, height: Math.max(1, high - low) };
  for (const [name, value] of Object.entries(shape)) box.setAttribute(name, value);
  area.after(box);
};

charts.brush = (svg, area) => {
  const { shareOf } = charts.placeOf(area);
  const name = area.dataset.axis;
  const heightAt = ({ clientX, clientY }) => new DOMPoint(clientX, clientY)
    .matrixTransform(svg.getScreenCTM().inverse()).y;
  area.addEventListener("pointerdown", (event) => {
    const start = heightAt(event);
    const follow = (moved) => {
      const [low, high] = [start, heightAt(moved)].sort((a, b) => a - b);
      if (high - low < 3) charts.brushes.delete(name); // a click
      else charts.brushes.set(name, [shareOf(low), shareOf(high)]);
      charts.drawBrush(svg, area);
      charts.apply(svg);
    };
    const end = (moved) => {
      follow(moved);
      area.removeEventListener("pointermove", follow);
      area.removeEventListener("pointerup", end);
    };
    area.setPointerCapture(event.pointerId);
    area.addEventListener("pointermove", follow);
    area.addEventListener("pointerup", end);
    event.preventDefault();
  });
  charts.drawBrush(svg, area);
};

charts.enhanceParallel = (svg) => {
  svg.lines = charts.linesOf(svg);
  const told = document.createElement("p");
  told.className = "brushed";
  const clear = document.createElement("button");
  clear.type = "button";
  clear.textContent = "Keep all";
  told.append("", clear);
  svg.before(told);
  const areas = [...svg.querySelectorAll("rect.brush")];
  const names = new Set(areas.map(({ dataset }) => dataset.axis));
  const hadBrushes = charts.brushes.size > 0;
  for (const name of [...charts.brushes.keys()].filter((old) => !names.has(old))) charts.brushes.delete(name);
  for (const area of areas) charts.brush(svg, area);
  clear.addEventListener("click", () => {
    charts.brushes.clear();
    for (const area of areas) charts.drawBrush(svg, area);
    charts.apply(svg);
  });
  const hint = document.createElement("p");
  hint.textContent = "Drag along an axis to keep the trials that cross it there.";
  svg.before(hint);
  if (hadBrushes) charts.apply(svg);
  else told.hidden = true;
};

// ---- Contours: two of the settings are chosen; the address keeps them -----------------------------------------------

charts.enhanceChoice = (box) => {
  const figures = [...box.querySelectorAll("figure")];
  if (figures.length < 2) return;
  const chooser = document.createElement("select");
  chooser.setAttribute("aria-label", "Settings of the contour");
  chooser.append(...["all pairs", ...figures.map((figure) => figure.dataset.name)].map((name) => new Option(name)));
  const isAsked = ({ dataset }) => [dataset.name, encodeURIComponent(dataset.name)].includes(asked);
  const asked = charts.picked || location.hash.slice(1);
  const show = () => {
    charts.picked = chooser.value;
    const index = chooser.selectedIndex - 1;
    figures.forEach((figure, place) => { figure.hidden = index >= 0 && index !== place; });
    box.classList.toggle("single", chooser.selectedIndex > 0);
  };
  chooser.selectedIndex = figures.findIndex(isAsked) + 1;
  chooser.addEventListener("change", () => {
    history.replaceState(null, "", `#${encodeURIComponent(chooser.value)}`);
    show();
  });
  box.before(chooser);
  show();
};

charts.begin = (root) => {
  for (const svg of root.querySelectorAll("svg.parallel")) charts.enhanceParallel(svg);
  for (const box of root.querySelectorAll(".choice")) charts.enhanceChoice(box);
};

board.more.push(charts.begin);
charts.begin(document);
