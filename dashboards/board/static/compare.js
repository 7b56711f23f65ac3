"use strict";
// Two runs side by side: their settings and metrics, and where these differ.

const compare = { sides: ["A", "B"], place: document.getElementById("differences") };

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

compare.decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // no address of ours, which is said of it
  }
};

compare.read = () => {
  // compare.html#STUDY/RUN,STUDY/RUN
  const parts = compare.decoded(location.hash.slice(1)).split(",").map((part) => part.split("/"));
  const asked = (index) => ({ study: parts[index]?.[0] || undefined, run: parts[index]?.[1] });
  return Object.fromEntries(compare.sides.map((side, index) => [side, asked(index)]));
};

compare.fill = async (side, run) => {
  const study = document.getElementById(`study-${side}`).value;
  const chooser = document.getElementById(`trial-${side}`);
  const content = await board.load(study);
  if (study !== document.getElementById(`study-${side}`).value) return false; // another was chosen meanwhile
  const options = Object.entries(content.runs).map(([id, { name, status, stage }]) => {
    const option = compare.element("option", stage === "report" ? `${name} (report seeds)` : name);
    if (status !== "FINISHED") option.textContent += ` (${status.toLowerCase()})`;
    option.value = id;
    return option;
  });
  chooser.replaceChildren(...options);
  if (run) chooser.value = run; // none of them where it is not there
  else if (side === "B" && options.length > 1 && study === document.getElementById("study-A").value) {
    chooser.selectedIndex = 1;
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

compare.draw = () => {
  const [a, b] = compare.sides.map(compare.chosen);
  if (!a || !b) return;
  history.replaceState(null, "", `#${a.study}/${a.run},${b.study}/${b.run}`);
  compare.about("A", a);
  compare.about("B", b);
  const isAll = document.getElementById("same").checked;
  const union = (one, other) => [...new Set([...Object.keys(one), ...Object.keys(other)])];
  const paths = union(a.params, b.params);
  const differing = paths.filter((path) => a.params[path] !== b.params[path]);
  const settings = (isAll ? paths : differing).map((path) => [path, a.params[path] ?? "", b.params[path] ?? ""]);
  const metrics = union(a.metrics, b.metrics).sort().map((metric) => {
    const [x, y] = [a.metrics[metric], b.metrics[metric]];
    const isNumber = typeof x === "number" && typeof y === "number";
    const share = isNumber && x !== 0 ? `${(100 * (y - x) / Math.abs(x)).toFixed(1)}%`.replace("-", "−") : "";
    const name = a.content.names[metric] ?? b.content.names[metric] ?? metric;
    const difference = isNumber ? [compare.number(y - x), y - x] : "";
    const title = name === metric ? metric : `${name} (${metric})`;
    return { isSame: x === y, cells: [title, [compare.number(x), x], [compare.number(y), y], difference, share] };
  });
  document.getElementById("told").textContent = a.run === b.run ? "A and B are the same run: choose another."
    : `${differing.length} of ${paths.length} settings differ.`;
  const shown = metrics.filter(({ isSame }) => isAll || !isSame);
  compare.place.replaceChildren(
    compare.element("h2", "Settings"),
    settings.length ? compare.table("setting-differences", "Settings", ["setting", "A", "B"], settings)
      : compare.element("p", "All settings are equal."),
    compare.element("h2", "Metrics"),
    shown.length ? compare.table("metric-differences", "Metrics", ["metric", "A", "B", "B − A", "relative"],
      shown.map(({ cells }) => cells)) : compare.element("p", "All metrics are equal."),
  );
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
  compare.place.replaceChildren();
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
  compare.tell("");
  try {
    for (const side of compare.sides) {
      const { study, run } = asked[side];
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
    const chosen = compare.sides.map((each) => compare.choosers(each).map(({ value }) => value).filter(Boolean));
    // The old address would bring back what is no longer compared.
    history.replaceState(null, "", `#${chosen.map((parts) => parts.join("/"))}`);
    compare.tell(compare.missing([], compare.sides.map(compare.emptyOf).filter(Boolean)));
  } catch (error) {
    compare.tell(error.message);
  }
};

if (compare.place) {
  for (const side of compare.sides) {
    document.getElementById(`study-${side}`).addEventListener("change", () => compare.choose(side));
    document.getElementById(`trial-${side}`).addEventListener("change", compare.draw);
  }
  document.getElementById("same").addEventListener("change", compare.draw);
  document.getElementById("exchange").addEventListener("click", () => {
    const [a, b] = compare.sides.map(compare.chosen);
    if (a && b) { location.hash = `#${b.study}/${b.run},${a.study}/${a.run}`; }
  });
  window.addEventListener("hashchange", compare.open);
  compare.open();
}
