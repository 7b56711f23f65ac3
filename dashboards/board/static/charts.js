"use strict";
// Runs under the pointer, brushing of parallel coordinates, a choice of contours. Without it all of them are shown.

const charts = { brushes: new Map(), picked: "" };

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

charts.apply = (svg) => {
  const ranges = [...charts.brushes];
  const kept = new Set();
  for (const { line, run, at } of svg.lines) {
    const isIn = ranges.every(([x, [low, high]]) => at.get(x) >= low && at.get(x) <= high);
    line.classList.toggle("off", !isIn);
    if (isIn) kept.add(run);
  }
  const told = svg.parentElement.querySelector(".brushed");
  told.hidden = !ranges.length;
  told.firstChild.textContent = `${kept.size} of ${svg.lines.length} trials are within the brushed ranges. `;
  const table = document.getElementById("trials");
  if (!table) return;
  board.stateOf(table).runs = ranges.length ? kept : null;
  board.show(table);
};

charts.drawBrush = (svg, area) => {
  const x = Number(area.dataset.at);
  const range = charts.brushes.get(x);
  area.nextElementSibling?.remove();
  if (!range) return;
  const box = document.createElementNS(svg.namespaceURI, "rect");
  const shape = { class: "brushed-range", x: x - 8, y: range[0], width: 16, height: Math.max(1, range[1] - range[0]) };
  for (const [name, value] of Object.entries(shape)) box.setAttribute(name, value);
  area.after(box);
};

charts.brush = (svg, area) => {
  const x = Number(area.dataset.at);
  const heightAt = ({ clientX, clientY }) => new DOMPoint(clientX, clientY)
    .matrixTransform(svg.getScreenCTM().inverse()).y;
  area.addEventListener("pointerdown", (event) => {
    const start = heightAt(event);
    const follow = (moved) => {
      const [low, high] = [start, heightAt(moved)].sort((a, b) => a - b);
      if (high - low < 3) charts.brushes.delete(x); // a click
      else charts.brushes.set(x, [low, high]);
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

charts.enhanceWays = (svg) => {
  svg.lines = charts.linesOf(svg);
  const told = document.createElement("p");
  told.className = "brushed";
  const clear = document.createElement("button");
  clear.type = "button";
  clear.textContent = "Keep all";
  told.append("", clear);
  svg.before(told);
  const areas = [...svg.querySelectorAll("rect.brush")];
  for (const area of areas) charts.brush(svg, area);
  clear.addEventListener("click", () => {
    charts.brushes.clear();
    for (const area of areas) charts.drawBrush(svg, area);
    charts.apply(svg);
  });
  const hint = document.createElement("p");
  hint.textContent = "Drag along an axis to keep the trials that cross it there.";
  svg.before(hint);
  if (charts.brushes.size) charts.apply(svg);
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
  for (const svg of root.querySelectorAll("svg.ways")) charts.enhanceWays(svg);
  for (const box of root.querySelectorAll(".choice")) charts.enhanceChoice(box);
};

board.more.push(charts.begin);
charts.begin(document);
