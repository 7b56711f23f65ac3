"use strict";
// Sorting, filtering and choosing in tables; news without a reload. Text from the store only ever enters as text.

const board = { states: new Map(), data: new Map(), curves: new Map(), waiting: new Map(), more: [] };

// ---- Tables -------------------------------------------------------------------------------------------------------

board.stateOf = (table) => {
  if (!board.states.has(table.id)) {
    board.states.set(table.id, { column: -1, isDescending: false, words: "", state: "", isWhole: false, chosen: [],
      isFull: false, off: new Set() });
  }
  return board.states.get(table.id);
};

// A row is asked for its state, for what its cells say, for what they are sorted by, and for itself.

board.rowOf = (element) => ({
  run: element.dataset.run,
  state: element.dataset.state,
  text: (column) => element.cells[column].textContent,
  key: (column) => element.cells[column].dataset.value,
  element: () => element,
});

board.rowToldBy = (model, [run, state, isMarked, cells]) => {
  // Of a long table only the first rows are in the page; others are made, as one of those, when they are shown.
  const told = cells.map((cell) => (Array.isArray(cell) ? cell : [cell]));
  let made;
  return {
    run,
    state,
    text: (column) => told[column][0] ?? told[column][1] ?? "",
    key: (column) => told[column][1],
    element: () => made ??= board.make(model, run, state, isMarked, told),
  };
};

board.make = (model, run, state, isMarked, told) => {
  const row = model.cloneNode(true);
  const [old, start] = [model.dataset.run, model.dataset.run.slice(0, 8)];
  const renewed = (text) => text.replaceAll(old, run).replaceAll(start, run.slice(0, 8));
  Object.assign(row.dataset, { run, state });
  row.className = isMarked ? "marked" : "";
  told.forEach(([text, key], column) => {
    const cell = row.cells[column];
    if (key === undefined) delete cell.dataset.value;
    else cell.dataset.value = key;
    if (text !== null) { cell.textContent = text; return; }
    for (const element of cell.children) {
      for (const { name, value } of [...element.attributes]) element.setAttribute(name, renewed(value));
      if (element.classList.contains("state")) element.className = `state ${state}`;
      element.textContent = key ?? renewed(element.textContent);
    }
  });
  return row;
};

board.rowsOf = (table) => {
  if (!table.allRows) {
    const first = [...table.tBodies[0].rows];
    const more = table.closest(".table")?.querySelector("script.more");
    const told = more ? JSON.parse(more.textContent) : [];
    table.allRows = [...first.map(board.rowOf), ...told.map((row) => board.rowToldBy(first[0], row))];
  }
  return table.allRows;
};

board.wordsOf = (row, n) => row.words ??= Array.from({ length: n }, (_, i) => row.text(i)).join(" ").toLowerCase();

board.valueOf = (row, column) => {
  const text = row.key(column) ?? row.text(column);
  const number = Number(text.replace("−", "-"));
  return text.trim() === "" || Number.isNaN(number) ? text : number;
};

board.before = (a, b) => {
  // Numbers before words; what is missing comes last, whichever way the rest is sorted.
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return typeof a === "number" ? a - b : a.localeCompare(b);
};

board.show = (table) => {
  const state = board.stateOf(table);
  const box = table.closest(".table");
  const heads = [...table.tHead.rows[0].cells];
  const rows = board.rowsOf(table);
  let order = rows;
  if (state.column >= 0) {
    const sign = state.isDescending ? -1 : 1;
    const keyed = rows.map((row) => [board.valueOf(row, state.column), row]);
    const isMissing = (value) => value === "" || value === "–" || value === "undefined" || value === "nan";
    keyed.sort(([a], [b]) => isMissing(a) - isMissing(b) || sign * board.before(a, b));
    order = keyed.map(([, row]) => row);
  }
  const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (row) => (!state.state || row.state === state.state) && !state.off.has(row.run)
    && words.every((word) => board.wordsOf(row, heads.length).includes(word));
  const shown = words.length || state.state || state.off.size ? order.filter(matches) : order;
  const most = state.isWhole ? shown.length : Number(box?.dataset.first ?? shown.length);
  table.tBodies[0].replaceChildren(...shown.slice(0, most).map((row) => row.element()));
  board.check(table);
  heads.forEach((cell, index) => {
    if (index === state.column) cell.setAttribute("aria-sort", state.isDescending ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
  const count = box?.querySelector(".count");
  if (!count) return;
  const hidden = shown.length - Math.min(most, shown.length);
  count.textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`
    + (hidden ? `, the first ${most} shown ` : "");
  if (hidden) {
    const all = document.createElement("button");
    all.type = "button";
    all.textContent = "Show all";
    all.addEventListener("click", () => { state.isWhole = true; board.show(table); });
    count.append(all);
  }
};

board.enhance = (table) => {
  const state = board.stateOf(table);
  const box = table.closest(".table");
  [...table.tHead.rows[0].cells].forEach((cell, index) => {
    cell.querySelector("button")?.addEventListener("click", () => {
      const isSame = state.column === index;
      // Numbers are looked at from the largest down, words from A.
      state.isDescending = isSame ? !state.isDescending : cell.classList.contains("number") && index > 1;
      state.column = index;
      board.show(table);
    });
  });
  const tools = box?.querySelector(".tools");
  if (tools) {
    tools.hidden = false;
    const field = tools.querySelector("input");
    field.value = state.words;
    field.addEventListener("input", () => { state.words = field.value; board.show(table); });
    const chooser = tools.querySelector("select");
    if (chooser) {
      chooser.value = state.state;
      chooser.addEventListener("change", () => { state.state = chooser.value; board.show(table); });
    }
  }
  table.addEventListener("change", (event) => board.choose(table, event.target));
  if (state.column >= 0 || state.words || state.state || state.off.size || box?.dataset.first) board.show(table);
  else board.check(table);
  board.offer(table);
};

board.enhanceAll = (root) => {
  // One filter for all tables of a page: those that have nothing to show are hidden with their headings.
  const tools = root.querySelector(".all .tools");
  if (!tools) return;
  const [field, chooser] = [tools.querySelector("input"), tools.querySelector("select")];
  const kept = board.stateOf({ id: "all tables" });
  const apply = () => {
    Object.assign(kept, { words: field.value, state: chooser.value });
    let count = 0;
    for (const section of root.querySelectorAll("section:has(table.sortable)")) {
      let n = 0;
      for (const table of section.querySelectorAll("table.sortable")) {
        Object.assign(board.stateOf(table), { words: kept.words, state: kept.state });
        board.show(table);
        (table.closest("details") ?? table).hidden = table.tBodies[0].rows.length === 0;
        n += table.tBodies[0].rows.length;
      }
      section.hidden = n === 0;
      count += n;
    }
    tools.querySelector(".count").textContent = `${count.toLocaleString("en")} rows`;
  };
  tools.hidden = false;
  field.value = kept.words;
  chooser.value = kept.state;
  field.addEventListener("input", apply);
  chooser.addEventListener("change", apply);
  apply();
};

// ---- Choosing runs --------------------------------------------------------------------------------------------------

board.choose = (table, box) => {
  if (box.type !== "checkbox") return;
  const state = board.stateOf(table);
  state.chosen = state.chosen.filter((run) => run !== box.value);
  state.isFull = box.checked && state.chosen.length === board.most;
  if (box.checked) state.chosen = [...state.chosen, box.value].slice(-board.most);
  board.check(table);
  board.offer(table);
};

board.most = 26; // runs that are compared: a letter each

board.check = (table) => {
  const { chosen } = board.stateOf(table);
  for (const box of table.querySelectorAll("td.pick input")) box.checked = chosen.includes(box.value);
};

board.offer = (table) => {
  const { chosen, isFull } = board.stateOf(table);
  const study = document.querySelector("[data-study]")?.dataset.study;
  const box = table.closest(".table");
  box?.querySelector(".chosen")?.remove();
  if (!study || !chosen.length) return;
  const line = document.createElement(chosen.length > 1 ? "a" : "span");
  line.className = "chosen";
  line.textContent = chosen.length > 1 ? `Compare the ${chosen.length} chosen` : "One is chosen: choose another";
  if (isFull) line.textContent += ` (at most ${board.most}: the first was given up)`;
  if (chosen.length > 1) line.href = `compare.html#${chosen.map((run) => `${study}/${run}`).join(",")}`;
  box.append(line);
};

// ---- News -----------------------------------------------------------------------------------------------------------

board.replace = (page) => {
  const [old, fresh] = [document.getElementById("live"), page.getElementById("live")];
  if (!old || !fresh) return;
  document.querySelector("header nav").replaceWith(document.adoptNode(page.querySelector("header nav")));
  document.title = page.title;
  Object.assign(document.body.dataset, page.body.dataset);
  const kinds = "details, .scroll, .tools input, .tools select, thead button, td.pick input";
  const keep = (root) => [...root.querySelectorAll(kinds)];
  const places = keep(old);
  const focused = places.indexOf(document.activeElement);
  const kept = places.map((element) => [element.open, element.scrollLeft, element.selectionStart]);
  const node = document.adoptNode(fresh);
  old.replaceWith(node);
  board.begin(node);
  keep(node).forEach((element, index) => {
    if (!kept[index]) return;
    const [isOpen, left] = kept[index];
    if (isOpen !== undefined) element.open = isOpen;
    element.scrollLeft = left;
    if (index === focused) {
      element.focus({ preventScroll: true });
      if (element.type === "search") element.setSelectionRange(kept[index][2], kept[index][2]);
    }
  });
};

board.listen = () => {
  const news = document.getElementById("news");
  if (!document.body.dataset.every || !document.getElementById("live")) return;
  const look = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { cache: "no-cache" });
        if (!answer.ok) throw new Error(String(answer.status));
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (page.body.dataset.mark !== document.body.dataset.mark) board.replace(page);
        news.textContent = `Looked at ${new Date().toLocaleTimeString()}`;
      } catch {
        news.textContent = "The board does not answer";
      }
    }
    setTimeout(look, 1000 * Number(document.body.dataset.every));
  };
  setTimeout(look, 500);
};

// ---- Data of studies, which pages from disk can only load as scripts ------------------------------------------------

board.take = (study, content) => board.data.set(study, content);
board.takeCurves = (study, content) => board.curves.set(study, content);

board.script = (name) => new Promise((tell, fail) => {
  const onerror = () => fail(new Error("The study cannot be loaded."));
  document.head.append(Object.assign(document.createElement("script"), { src: name, onload: tell, onerror }));
});

board.load = async (study) => {
  if (!board.data.has(study)) await board.once(`data-${encodeURIComponent(study)}.js`);
  return board.data.get(study);
};

board.once = (name) => {
  // Who asks for what is being loaded waits for it.
  const load = () => board.script(name).finally(() => board.waiting.delete(name));
  if (!board.waiting.has(name)) board.waiting.set(name, load());
  return board.waiting.get(name);
};

// ---- All of it ------------------------------------------------------------------------------------------------------

board.begin = (root) => {
  for (const table of root.querySelectorAll("table.sortable")) board.enhance(table);
  board.enhanceAll(root);
  for (const begin of board.more) begin(root);
  for (const button of navigator.clipboard ? root.querySelectorAll(".copy") : []) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
      button.textContent = "Copied";
    });
  }
};

board.begin(document);
board.listen();
document.documentElement.dataset.ready = String(Math.round(performance.now()));
