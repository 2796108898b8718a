// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// A table of any length, sortable by its column heads: for reports, layers, differences and tensors.
"use strict";
(() => {
	const { el } = Page;
	const narrow = matchMedia("(max-width: 820px)");

	/*
	 * A column: {id, title, width, text(row), sort(row)?, tip(row)?, fill(cell, row)?, down?: descending order
	 * first, narrow?: width on small screens; "second" puts it on a second line, null hides it}. Returns
	 * {show(columns, rows), list}.
	 */
	function grid(box, { use, keys } = {}) {
		let columns = [], rows = [], sort = null, drawn = "";
		const list = Page.list(box, { make, fill, use: (i, e) => rows[i] && use?.(rows[i], e), keys: (e, i) => rows[i] && keys?.(e, rows[i]) });

		function make() {
			return el("div", { role: "row" }, ...columns.map(c => el("span", { role: "gridcell", className: "g-" + c.id + (c.right ? " right" : "") + (c.narrow === "second" ? " narrow-second" : "") + (c.narrow === null ? " narrow-away" : "") })));
		}

		function fill(e, i) {
			columns.forEach((c, k) => {
				const cell = e.children[k], r = rows[i];
				if (c.fill)
					c.fill(cell, r);
				else
					cell.textContent = c.text(r);
				cell.title = c.tip?.(r) ?? (c.fill ? "" : cell.textContent);
			});
		}

		function order() {
			const c = columns.find(x => x.id === sort?.id);
			if (!c?.sort)
				return;
			const sign = sort.down ? -1 : 1;
			rows.sort((a, b) => {
				const x = c.sort(a), y = c.sort(b);
				return x < y ? -sign : x > y ? sign : 0;
			});
		}

		function head() {
			return el("div", { className: "row-head", role: "row" }, ...columns.map(c => {
				const cls = "g-" + c.id + (c.right ? " right" : "") + (c.narrow === "second" || c.narrow === null ? " narrow-away" : "");
				if (!c.sort)
					return el("span", { role: "columnheader", className: cls, textContent: c.title });
				const button = el("button", { type: "button", textContent: c.title, onclick: () => {
					sort = { id: c.id, down: sort?.id === c.id ? !sort.down : Boolean(c.down) };
					drawn = "";
					show(columns, rows);
				} });
				return el("span", { role: "columnheader", className: cls, "aria-sort": sort?.id === c.id ? sort.down ? "descending" : "ascending" : "none" }, button);
			}));
		}

		function widths() {
			const small = narrow.matches;
			const cols = columns.filter(c => !small || (c.narrow !== null && c.narrow !== "second")).map(c => small && c.narrow ? c.narrow : c.width);
			box.style.setProperty("--cols", cols.join(" "));
			box.classList.toggle("two-lines", small && columns.some(c => c.narrow === "second"));
		}

		function show(cols, all) {
			const key = cols.map(c => c.id).join() + JSON.stringify(sort);
			if (cols !== columns && !cols.some(c => c.id === sort?.id))
				sort = null;
			columns = cols;
			rows = all.slice();
			order();
			if (key !== drawn) {
				drawn = key;
				widths();
				list.reset(head());
			}
			list.update(rows.length);
		}

		narrow.addEventListener("change", () => { drawn = ""; if (columns.length) show(columns, rows); });
		return { show, list, rows: () => rows };
	}

	// ---- columns used by several tables

	const { bytes, count, percent, seconds } = Words;
	const base = file => (file ?? "").slice((file ?? "").lastIndexOf("/") + 1);

	function placeOf(r) {
		if (r.before_attach)
			return r.holder || r.name || Words.unheld();
		if (r.file || r.function)
			return base(r.file) + (r.line ? ":" + r.line : "") + (r.function ? ` (${r.function})` : "");
		return r.source === "native" ? "native thread (no Python)" : r.source === "untraced" ? "untraced" : r.source === "filtered" ? "filtered out" : "no Python frames";
	}
	// The full path of a place. Mappings of the host have no line.
	const pathOf = r => r.file ? r.file + (r.line ? ":" + r.line : "") : placeOf(r);

	// Merges rows of the same line in different modules, as the text report does. of: keys whose values are added
	// up.
	function joined(rows, of = ["bytes", "count"]) {
		const all = new Map();
		for (const r of rows) {
			const key = JSON.stringify([r.file, r.line, r.function, r.phase, r.category, r.source, r.name, r.before_attach, r.stack, r.old, r.new]), j = all.get(key);
			if (!j) {
				all.set(key, { ...r, of: new Set([r.module ?? ""]), classes: new Set([r.module_class ?? ""]) });
				continue;
			}
			for (const k of of)
				j[k] += r[k];
			j.of.add(r.module ?? "");
			j.classes.add(r.module_class ?? "");
			if (j.median !== r.median)
				j.median = undefined;
		}
		for (const j of all.values()) {
			j.module = common([...j.of]);
			j.modules = j.of.size;
			if (j.classes.size > 1)
				j.module_class = "";
		}
		return [...all.values()].sort((a, b) => Math.abs(b[of[0]]) - Math.abs(a[of[0]]));
	}

	// Common form of module names, blocks.*.mlp; "" if they have none.
	function common(names) {
		const split = names.map(n => n.split("."));
		if (names.length === 1 || split.some(s => s.length !== split[0].length))
			return names.length === 1 ? names[0] : "";
		const parts = split[0].map((part, i) => split.every(s => s[i] === part) ? part : "*");
		return parts.every(x => x === "*") ? "" : parts.join(".");
	}

	function moduleOf(r) {
		if (r.modules > 1)
			return r.module ? `${Words.module(r)} ×${r.modules}` : `(${r.modules} modules)`;
		return Words.module(r);
	}

	// A size with a proportional bar in the colour of its category.
	function sizeColumn(most, sum, colour, title = "Size", get = r => r.bytes) {
		return {
			id: "size", title, width: "88px", right: true, sort: get, down: true, tip: r => `${count(get(r))} bytes, ${percent(get(r), sum)}`,
			fill(cell, r) {
				if (!cell.firstChild)
					cell.append(el("b"), el("i", { className: "bar-fill" }));
				cell.firstChild.textContent = bytes(get(r));
				cell.lastChild.style.transform = `scaleX(${most ? Math.abs(get(r)) / most : 0})`;
				cell.lastChild.style.background = colour(r);
			},
		};
	}
	// The share of what the table shows.
	const shareColumn = sum => ({ id: "share", title: "%", width: "40px", right: true, sort: r => r.bytes, down: true, text: r => Words.share(r.bytes, sum), tip: r => percent(r.bytes, sum), narrow: "40px" });
	const countColumn = { id: "count", title: "Blocks", width: "56px", right: true, sort: r => r.count, down: true, text: r => count(r.count ?? 0), narrow: "48px" };
	const categoryColumn = {
		id: "category", title: "Role", width: "126px", sort: r => r.category ?? "", narrow: "1fr",
		fill(cell, r) {
			if (!cell.firstChild)
				cell.append(el("i", { className: "dot" }), "");
			cell.firstChild.style.background = r.category ? Page.categoryColour(r.category) : Page.colour("less");
			cell.lastChild.data = r.category ? Words.role(r.category) : "several roles";
		},
	};
	const phaseColumn = { id: "phase", title: "Phase", width: "116px", sort: r => r.phase ?? "", text: r => r.before_attach ? Words.before() : Words.phase(r.phase), narrow: null };
	const moduleColumn = { id: "module", title: "Module", width: "minmax(80px, 1fr)", sort: r => r.module ?? "", text: moduleOf, narrow: null,
		tip: r => r.of?.size > 1 ? [...r.of].slice(0, 30).map(m => m || "(no module)").join("\n") : [r.module, r.module_class && `(${r.module_class})`].filter(Boolean).join(" ") };
	const placeColumn = { id: "place", title: "Location", width: "minmax(160px, 2fr)", sort: placeOf, text: placeOf, narrow: "second", tip: pathOf };

	Page.grid = grid;
	Page.columns = { size: sizeColumn, share: shareColumn, count: countColumn, category: categoryColumn, phase: phaseColumn, module: moduleColumn, place: placeColumn, placeOf, pathOf, moduleOf, joined, time: seconds, base };
})();
