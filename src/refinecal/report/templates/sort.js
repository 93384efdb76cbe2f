// Headers become buttons that sort: smallest first, largest first, as written. What is missing stays last.
"use strict";
(() => {
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

  const compare = (a, b) => {
    const [x, y] = [a.dataset.value, b.dataset.value];
    if (x !== undefined && y !== undefined) return Number(x) - Number(y) || 0; // infinities are equal
    if (x !== undefined || y !== undefined) return x === undefined ? 1 : -1; // numbers before words
    const [s, t] = [a, b].map((cell) => cell.title || cell.textContent);
    return s.localeCompare(t, undefined, { numeric: true });
  };

  const sorted = (rows, column, order) => {
    if (order === "none") return rows;
    const cell = (row) => row.cells[column];
    const isMissing = (row) => "missing" in cell(row).dataset;
    const sign = order === "ascending" ? 1 : -1;
    const there = rows.filter((row) => !isMissing(row));
    there.sort((a, b) => sign * compare(cell(a), cell(b)));
    return [...there, ...rows.filter(isMissing)];
  };

  for (const table of document.querySelectorAll("table")) {
    const rows = [...table.tBodies[0].rows];
    const headers = [...table.tHead.rows[0].cells];
    table.classList.add("sortable");
    headers.forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => {
        const order = NEXT[header.getAttribute("aria-sort") ?? "none"];
        headers.forEach((other) => other.removeAttribute("aria-sort"));
        if (order !== "none") header.setAttribute("aria-sort", order);
        table.tBodies[0].append(...sorted(rows, column, order));
      });
    });
  }
})();
