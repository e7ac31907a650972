// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Tables are sorted by the column whose head is clicked; a second click turns the order.
"use strict";

function columns(table) {
  // [head, index of its column]; a head over several columns has none.
  const taken = [], found = [];
  [...table.tHead.rows].forEach((row, line) => {
    let column = 0;
    for (const head of row.cells) {
      while (taken[`${line},${column}`]) column++;
      for (let i = 0; i < head.rowSpan; i++)
        for (let j = 0; j < head.colSpan; j++) taken[`${line + i},${column + j}`] = true;
      if (head.colSpan === 1) found.push([head, column]);
      column += head.colSpan;
    }
  });
  return found;
}

function key(row, column) {
  const cell = row.cells[column];
  const text = cell.firstChild ? cell.firstChild.textContent.trim() : "";
  // Values of an axis have units of their own, which data-sort has in one.
  const number = parseFloat(cell.dataset.sort ?? text.replaceAll(",", ""));
  return [Number.isNaN(number) ? Infinity : number, text];
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const [head, column] of columns(table)) {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].map((row) => [key(row, column), row]);
      rows.sort(([a], [b]) => (a[0] === b[0] ? a[1].localeCompare(b[1]) : a[0] - b[0]));
      if (down) rows.reverse();
      table.tBodies[0].append(...rows.map(([, row]) => row));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter") sort();
    });
  }
}

function place(box) {
  // The headings that lead to it: no other box of the page has all of them.
  const section = box.closest("section"), details = box.closest("details");
  const before = (title) => title.compareDocumentPosition(box) & Node.DOCUMENT_POSITION_FOLLOWING;
  const titles = [section.querySelector("h2"), [...section.querySelectorAll("h3")].filter(before).pop()];
  if (details) titles.push(details.querySelector("summary"));
  return titles.filter(Boolean).map((title) => title.textContent.trim()).join(", ");
}

// What is wider than the page, or cut at its height, can be scrolled by keys too.
const watch = new ResizeObserver((entries) => {
  for (const { target: box } of entries) {
    const cut = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
    for (const [name, value] of [
      ["tabindex", "0"],
      ["role", "region"],
      ["aria-label", place(box)],
    ])
      if (cut) box.setAttribute(name, value);
      else box.removeAttribute(name);
  }
});
for (const box of document.querySelectorAll(".scroll, pre")) watch.observe(box);
