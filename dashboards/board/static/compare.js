"use strict";
// Runs side by side: their settings, metrics and curves, and where these differ.

const compare = { sides: ["A", "B"], place: document.getElementById("differences"), metric: "" };

compare.element = (name, text, ...children) => {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
};

compare.number = (value) => {
  if (typeof value === "string") return { nan: "undefined", inf: "∞", "-inf": "−∞" }[value] ?? value;
  if (value === undefined) return "";
  const size = Math.abs(value);
  return (value === 0 || (size >= 5e-4 && size < 1e4) ? value.toFixed(3) : value.toPrecision(3)).replace("-", "−");
};

compare.setting = (text) => {
  const isDrawn = /^-?\d+\.\d{7,}(e[-+]?\d+)?$/.test(text); // with more digits than one can read
  return isDrawn ? String(Number(Number(text).toPrecision(5))) : text;
};

compare.decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // no address of ours, which is said of it
  }
};

compare.read = () => {
  // compare.html#STUDY/RUN,STUDY/RUN,...
  const parts = compare.decoded(location.hash.slice(1)).split(",").map((part) => part.split("/"));
  return parts.map(([study, run]) => ({ study: study || undefined, run }));
};

compare.setSides = (n) => {
  // A letter each; more fieldsets are made as the first.
  const count = Math.min(Math.max(n, 2), board.most);
  const first = document.querySelector("[data-side=A]");
  for (const side of document.querySelectorAll("[data-side]")) {
    if (side.dataset.side.charCodeAt(0) - 65 >= count) side.remove();
  }
  compare.sides = Array.from({ length: count }, (_, index) => String.fromCharCode(65 + index));
  for (const letter of compare.sides) {
    if (document.querySelector(`[data-side=${letter}]`)) continue;
    const made = first.cloneNode(true);
    made.dataset.side = letter;
    made.className = `run${(letter.charCodeAt(0) - 65) % 8}`;
    made.querySelector("legend").textContent = `Run ${letter}`;
    for (const element of made.querySelectorAll("[id]")) element.id = element.id.replace(/A$/, letter);
    made.querySelector("p").replaceChildren();
    first.parentElement.append(made);
    compare.listen(letter);
  }
  document.getElementById("exchange").hidden = count !== 2;
  document.getElementById("remove").hidden = count === 2;
  document.getElementById("add").disabled = count === board.most;
  document.getElementById("left-out").textContent = n > count ? `The first ${count} of ${n} runs are compared.` : "";
};

compare.fill = async (side, run) => {
  const study = document.getElementById(`study-${side}`).value;
  const chooser = document.getElementById(`trial-${side}`);
  const content = await board.load(study);
  if (study !== document.getElementById(`study-${side}`).value) return false; // another was chosen meanwhile
  const options = Object.entries(content.runs).map(([id, { name, status, stage }]) => {
    const seeds = { report: " (report seeds)", replicate: " (more seeds)" }[stage] ?? "";
    const option = compare.element("option", `${name}${seeds}`);
    if (status !== "FINISHED") option.textContent += ` (${status.toLowerCase()})`;
    option.value = id;
    return option;
  });
  chooser.replaceChildren(...options);
  if (run) chooser.value = run; // none of them where it is not there
  else if (side !== "A" && study === document.getElementById("study-A").value) {
    chooser.selectedIndex = Math.min(side.charCodeAt(0) - 65, options.length - 1);
  }
  return true;
};

compare.chosen = (side) => {
  const study = document.getElementById(`study-${side}`).value;
  const run = document.getElementById(`trial-${side}`).value;
  const content = board.data.get(study);
  const found = content?.runs[run];
  return found && { study, run, content, ...found, params: { ...content.shared, ...found.params } };
};

compare.table = (name, caption, columns, rows) => {
  const heads = columns.map((title, index) => {
    const button = compare.element("button", title);
    button.type = "button";
    const head = compare.element("th", "", button);
    head.scope = "col";
    if (name === "metric-differences" && index > 0) head.className = "number";
    return head;
  });
  const body = rows.map((cells) => {
    const row = document.createElement("tr");
    cells.forEach((cell, index) => {
      const [text, value] = Array.isArray(cell) ? cell : [cell];
      const made = compare.element(index ? "td" : "th", text);
      if (!index) made.scope = "row";
      else if (name === "metric-differences") made.className = "number";
      if (value !== undefined) made.dataset.value = value;
      row.append(made);
    });
    return row;
  });
  const words = compare.element("caption", caption);
  words.className = "unseen";
  const table = compare.element("table", "", words, compare.element("thead", "", compare.element("tr", "", ...heads)),
    compare.element("tbody", "", ...body));
  table.id = name;
  table.className = "sortable";
  const scroll = compare.element("div", "", table);
  scroll.className = "scroll";
  const box = compare.element("div", "", scroll);
  box.className = "table";
  board.enhance(table);
  return box;
};

compare.about = (side, run) => {
  const line = document.getElementById(`about-${side}`);
  const address = document.getElementById("compare").dataset.run;
  line.replaceChildren(run.cause ? `failed: ${run.cause} ` : "");
  if (!address) return;
  const link = compare.element("a", "MLflow");
  const [experiment, id] = [run.content.experiment, run.run].map(encodeURIComponent);
  link.href = address.replace("/EXPERIMENT/", `/${experiment}/`).replace("/RUN?", `/${id}?`);
  link.className = "out";
  line.append(link);
};

compare.titled = (runs, metric) => {
  const name = runs.map((run) => run.content.names[metric]).find(Boolean) ?? metric;
  return name === metric ? metric : `${name} (${metric})`;
};

compare.isSame = (values) => values.every((value) => value === values[0]);

compare.metricCells = (runs, metric) => {
  const values = runs.map((run) => run.metrics[metric]);
  const cells = [compare.titled(runs, metric), ...values.map((value) => [compare.number(value), value])];
  if (runs.length > 2) return cells;
  const [x, y] = values;
  const isNumber = typeof x === "number" && typeof y === "number";
  const share = isNumber && x !== 0 ? `${(100 * (y - x) / Math.abs(x)).toFixed(1)}%`.replace("-", "−") : "";
  return [...cells, isNumber ? [compare.number(y - x), y - x] : "", share];
};

compare.draw = () => {
  const runs = compare.sides.map(compare.chosen);
  if (!runs.every(Boolean)) return;
  history.replaceState(null, "", `#${runs.map(({ study, run }) => `${study}/${run}`).join(",")}`);
  runs.forEach((run, index) => compare.about(compare.sides[index], run));
  const isAll = document.getElementById("same").checked;
  const union = (kind) => [...new Set(runs.flatMap((run) => Object.keys(run[kind])))];
  const paths = union("params");
  const isVaried = (path) => !compare.isSame(runs.map((run) => run.params[path]));
  const differing = paths.filter(isVaried);
  const settings = (isAll ? paths : differing).map((path) => [path,
    ...runs.map((run) => compare.setting(run.params[path] ?? ""))]);
  const metrics = union("metrics").sort().filter((metric) => isAll
    || !compare.isSame(runs.map((run) => run.metrics[metric])));
  const isOne = new Set(runs.map(({ run }) => run)).size < runs.length;
  document.getElementById("told").textContent = isOne && runs.length === 2 ? "A and B are the same run: choose another."
    : `${differing.length} of ${paths.length} settings differ.`;
  const titles = ["metric", ...compare.sides, ...(runs.length === 2 ? ["B − A", "relative"] : [])];
  compare.place.replaceChildren(
    compare.element("h2", "Settings"),
    settings.length ? compare.table("setting-differences", "Settings", ["setting", ...compare.sides], settings)
      : compare.element("p", "All settings are equal."),
    compare.element("h2", "Metrics"),
    metrics.length ? compare.table("metric-differences", "Metrics", titles,
      metrics.map((metric) => compare.metricCells(runs, metric))) : compare.element("p", "All metrics are equal."),
  );
  compare.drawCurves(runs);
};

// ---- Curves ---------------------------------------------------------------------------------------------------------

compare.drawCurves = async (runs) => {
  const place = document.getElementById("curves");
  const asked = location.hash;
  place.replaceChildren();
  for (const study of new Set(runs.map((run) => run.study))) {
    if (!board.curves.has(study)) await board.once(`curves-${encodeURIComponent(study)}.js`).catch(() => {});
  }
  if (location.hash !== asked) return; // others were chosen meanwhile
  const curvesOf = (metric) => runs.map((run, index) => ({ side: compare.sides[index], name: run.name,
    points: board.curves.get(run.study)?.[metric]?.[run.run] ?? [] })).filter(({ points }) => points.length);
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(board.curves.get(run.study) ?? {})))]
    .filter((metric) => curvesOf(metric).length);
  if (!metrics.length) return;
  const options = metrics.map((metric) => new Option(compare.titled(runs, metric), metric));
  const chooser = compare.element("select", "", ...options);
  chooser.setAttribute("aria-label", "Metric of the curves");
  if (metrics.includes(compare.metric)) chooser.value = compare.metric;
  const box = document.createElement("div");
  const show = () => {
    compare.metric = chooser.value;
    const mayBeLog = !runs.some(({ content }) => content.bounded.includes(chooser.value));
    box.replaceChildren(drawing.chart(curvesOf(chooser.value), chooser.selectedOptions[0].textContent, mayBeLog));
  };
  chooser.addEventListener("change", show);
  place.replaceChildren(compare.element("h2", "Learning curves"), chooser, box);
  show();
};

compare.other = () => {
  // Where nothing is asked for: another trial of A's study or, if it has but one, the next study.
  const chooser = document.getElementById("study-A");
  const isAlone = document.getElementById("trial-A").options.length < 2;
  return chooser.options[(chooser.selectedIndex + (isAlone ? 1 : 0)) % chooser.options.length].value;
};

compare.missing = (names, empty) => names.length > 1 ? `Runs ${names.join(" and ")} are not there: choose others.`
  : names.length ? `Run ${names[0]} is not there: choose another.`
  : empty.length ? `The study ${empty[0]} has no trials yet: choose another.`
  : "Choose a trial of each study.";

compare.tell = (words) => {
  // In the place of what was compared before.
  for (const side of compare.sides) document.getElementById(`about-${side}`).replaceChildren();
  for (const place of [compare.place, document.getElementById("curves")]) place.replaceChildren();
  document.getElementById("told").textContent = words;
};

compare.choosers = (side) => ["study", "trial"].map((kind) => document.getElementById(`${kind}-${side}`));

compare.emptyOf = (side) => {
  // The name of a study that has no trials.
  const [study, trials] = compare.choosers(side);
  return study.value && !trials.options.length ? study.selectedOptions[0].textContent : "";
};

compare.open = async () => {
  const asked = compare.read();
  const missing = [];
  compare.setSides(asked.length);
  compare.tell("");
  try {
    for (const [index, side] of compare.sides.entries()) {
      const { study, run } = asked[index] ?? {};
      const [chooser, trials] = compare.choosers(side);
      if (study) chooser.value = study;
      else if (side === "B") chooser.value = compare.other();
      if (chooser.value) await compare.fill(side, run);
      else trials.replaceChildren();
      if (study && !trials.value && !compare.emptyOf(side)) missing.push(run ? `${study}/${run}` : study);
    }
    const empty = compare.sides.map(compare.emptyOf).filter(Boolean);
    if (missing.length || empty.length) compare.tell(compare.missing(missing, empty));
    else compare.draw();
  } catch (error) {
    compare.tell(error.message);
  }
};

compare.choose = async (side) => {
  try {
    if (!await compare.fill(side)) return;
    if (compare.sides.every(compare.chosen)) { compare.draw(); return; }
    // The old address would bring back what is no longer compared.
    history.replaceState(null, "", `#${compare.parts().join(",")}`);
    compare.tell(compare.missing([], compare.sides.map(compare.emptyOf).filter(Boolean)));
  } catch (error) {
    compare.tell(error.message);
  }
};

compare.listen = (side) => {
  document.getElementById(`study-${side}`).addEventListener("change", () => compare.choose(side));
  document.getElementById(`trial-${side}`).addEventListener("change", compare.draw);
};

compare.partOf = (side) => compare.choosers(side).map(({ value }) => value).filter(Boolean).join("/");
compare.parts = () => compare.sides.map(compare.partOf);

if (compare.place) {
  for (const side of compare.sides) compare.listen(side);
  document.getElementById("same").addEventListener("change", compare.draw);
  document.getElementById("exchange").addEventListener("click", () => {
    const [a, b] = compare.sides.map(compare.chosen);
    if (a && b) { location.hash = `#${b.study}/${b.run},${a.study}/${a.run}`; }
  });
  document.getElementById("add").addEventListener("click", () => {
    const parts = compare.parts();
    const [study, trials] = compare.choosers("A");
    const runs = [...trials.options].map(({ value }) => `${study.value}/${value}`);
    location.hash = `#${[...parts, runs.find((run) => !parts.includes(run)) ?? parts[0]].join(",")}`;
  });
  document.getElementById("remove").addEventListener("click", () => {
    location.hash = `#${compare.parts().slice(0, -1).join(",")}`;
  });
  window.addEventListener("hashchange", compare.open);
  compare.open();
}
