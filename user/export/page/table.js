// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Memory as a table by line, category, module or stack, for a moment or a window.
"use strict";
(() => {
	const { $, head, state, el } = Page;
	const { bytes, count, percent } = Words;
	const COLUMNS = {
		line: ["size", "count", "category", "phase", "module", "place"],
		stack: ["size", "count", "category", "phase", "module", "place"],
		category: ["size", "share", "count", "category"],
		module: ["size", "share", "count", "category", "module"],
	};
	const TITLES = { size: "Size", share: "Share", count: "Blocks", category: "Category", phase: "Phase", module: "Module", place: "Location" };
	const SHORT = { forward: "fwd", backward: "bwd", optimizer: "opt", data: "data" };
	let now = null, list = null, sort = { column: "size", down: true };

	const rowOf = i => now.list[now.order[i]];
	const words = s => (s ?? "").replace("_", " ");

	function make() {
		// Without a column for the share, its bar is below the size.
		const bar = el("i", { className: "bar-fill" }), own = COLUMNS[state.by].includes("share");
		return el("div", { role: "row" }, ...COLUMNS[state.by].map(c =>
			el("span", { role: "gridcell", className: "c-" + c }, c === "size" ? el("b") : null, c === (own ? "share" : "size") ? bar : null)));
	}

	function fill(e, i) {
		const id = now.order[i], g = now.list[id], size = now.bytes[id];
		COLUMNS[state.by].forEach((c, k) => {
			const cell = e.children[k];
			const bar = cell.querySelector(".bar-fill");
			if (bar) {
				bar.style.transform = `scaleX(${now.most ? Math.abs(size) / now.most : 0})`;
				bar.style.background = size < 0 ? Page.colour("less") : g.category ? Page.categoryColour(g.category) : mix(g);
				cell.title = percent(size, now.sum);
			}
			if (c === "size")
				cell.firstChild.textContent = bytes(size);
			if (c === "size" || c === "share")
				return;
			if (c === "category") {
				const text = g.row.nothing ? "unknown" : g.category ? words(g.category) : g.categories.size + " categories";
				if (cell.dataset.c !== g.category || !cell.firstChild) {
					const dot = el("i", { className: "dot" });
					dot.style.backgroundColor = g.category ? Page.categoryColour(g.category) : Page.colour("soft");
					cell.replaceChildren(dot, text);
					cell.dataset.c = g.category;
					cell.dataset.theme = state.theme;
				} else {
					cell.lastChild.data = text;
					if (cell.dataset.theme !== String(state.theme))
						cell.firstChild.style.backgroundColor = Page.categoryColour(g.category);
				}
				return;
			}
			cell.textContent = text(c, g, id);
			if (c === "place")
				cell.title = title(g);
			else if (c === "module")
				cell.title = moduleTitle(g);
			else if (c === "phase")
				cell.title = g.row.phase ?? "";
		});
	}

	// The parts of a bar for a row with several categories.
	function mix(g) {
		if (!now.of)
			return Page.colour("soft");
		const by = new Map(), stops = [];
		let all = 0, from = 0;
		for (const i of g.of)
			if (now.of[i] > 0) {
				by.set(Page.rows[i].category, (by.get(Page.rows[i].category) ?? 0) + now.of[i]);
				all += now.of[i];
			}
		for (const c of head.categories ?? [])
			if (by.has(c)) {
				const to = from + by.get(c) / all * 100;
				stops.push(`${Page.categoryColour(c)} ${from}% ${to}%`);
				from = to;
			}
		return stops.length ? `linear-gradient(to right, ${stops.join(", ")})` : Page.colour("soft");
	}

	function text(c, g, id) {
		switch (c) {
		case "count": return g.row.nothing && !now.count[id] ? "–" : count(now.count[id]);
		case "module": return (g.module || (g.row.module_class ? `(${g.row.module_class})` : state.by === "module" ? g.row.nothing ? "(not known)" : "(no module)" : "")) + (g.inModules ? ` (${g.inModules})` : "");
		case "phase": return g.row.before_attach ? "" : SHORT[g.row.phase] ?? "";
		default: return g.place;
		}
	}

	function title(g) {
		const lines = [];
		if (g.row.file)
			lines.push(g.row.file + ":" + g.row.line);
		if (state.by === "stack")
			for (const f of Page.stack(g.row.stack)) {
				const frame = Page.frames[f];
				lines.push(frame.name + (frame.file ? ` (${frame.file}:${frame.line})` : ""));
			}
		else if (g.places.size > 1)
			lines.push(...g.places);
		if (g.row.source === "autograd")
			lines.push("allocated in backward; the line is that of forward");
		return lines.join("\n");
	}

	const moduleTitle = g => [...g.modules].slice(0, 30).map(m => m || "(no module)").join("\n") + (g.modules.size > 30 ? "\n…" : "");

	// Filters all views to this row.
	function use(i) {
		const g = rowOf(i), term = Page.filter.term;
		if (!g || !state.ready)
			return;
		const terms = [];
		if (state.by === "category" || (g.category && state.by !== "module"))
			terms.push(term("category", g.row.category));
		if (state.by === "module")
			terms.push(term("module", g.row.module));
		else if (g.row.file)
			terms.push(Page.filter.line(g.row));
		else if (g.row.before_attach && state.by !== "category")
			terms.push(g.row.name ? term("name", g.row.name) : 'source:census');
		if ((state.by === "line" || state.by === "stack") && !g.row.before_attach && g.row.phase)
			terms.push(term("phase", g.row.phase));
		Page.find(terms);
	}

	function order() {
		const by = {
			size: null,
			share: null,
			count: id => now.count[id],
			category: id => now.list[id].category,
			phase: id => now.list[id].row.phase ?? "",
			module: id => now.list[id].module,
			place: id => now.list[id].place,
		}[sort.column];
		if (by)
			now.order.sort((a, b) => {
				const x = by(a), y = by(b);
				return (x < y ? -1 : x > y ? 1 : 0) * (sort.down ? -1 : 1);
			});
		else if (!sort.down)
			now.order.reverse();
	}

	function columns() {
		const header = el("div", { className: "row-head", role: "row" }, ...COLUMNS[state.by].map(c => el("button", {
			type: "button",
			role: "columnheader",
			className: "c-" + c,
			"aria-sort": sort.column === c ? sort.down ? "descending" : "ascending" : "none",
			textContent: TITLES[c],
			onclick: () => {
				sort = { column: c, down: sort.column === c ? !sort.down : !["place", "module", "category", "phase"].includes(c) };
				columns();
				update();
			},
		})));
		$("table").className = "fill by-" + state.by;
		list ??= Page.list($("table"), { make, fill, use, keys });
		list.reset(header);
	}

	function keys(e) {
		if (e.key !== "c")
			return false;
		copy();
		return true;
	}

	function tsv() {
		const cols = COLUMNS[state.by].filter(c => c !== "share");
		const lines = [["bytes", ...cols.filter(c => c !== "size"), "file", "line"].join("\t")];
		for (const id of now.order) {
			const g = now.list[id];
			const cells = [now.bytes[id], ...cols.filter(c => c !== "size").map(c =>
				c === "count" ? now.count[id] : c === "category" ? g.category : c === "phase" ? g.row.phase ?? "" : text(c, g, id)),
			state.by === "line" || state.by === "stack" ? g.row.file ?? "" : "", state.by === "line" || state.by === "stack" ? g.row.line || "" : ""];
			// Prevent spreadsheets from parsing a name as a formula.
			lines.push(cells.map(v => (typeof v === "string" && /^[=+\-@\uff1d\uff0b\uff0d\uff20]./.test(v) ? "'" : "") +
				String(v).replace(/[\t\n\r]/g, " ")).join("\t"));
		}
		return lines.join("\n") + "\n";
	}

	function copy() {
		const all = tsv();
		const done = ok => Page.say(ok ? `${count(now.order.length)} ${now.order.length === 1 ? "row" : "rows"} copied.` : "The browser does not let this page copy.");
		if (navigator.clipboard)
			navigator.clipboard.writeText(all).then(() => done(true), () => done(oldCopy(all)));
		else
			done(oldCopy(all));
	}

	function oldCopy(all) {
		const area = el("textarea", { value: all, className: "sr" });
		document.body.append(area);
		area.select();
		const ok = document.execCommand("copy");
		area.remove();
		return ok;
	}

	// States the sum of the rows.
	function sum(f) {
		const exact = n => `${count(n)} bytes`;
		const d = Page.device();
		let said = state.filter ? `${bytes(f.sum)} of ${bytes(f.all)} pass the filter (${exact(f.sum)}). ` : "";
		if (f.measure === "live") {
			const off = f.all - f.end.allocated;
			if (off)
				said += `The rows add up to ${exact(f.all)}, ${exact(Math.abs(off))} ${off < 0 ? "less" : "more"} than the allocator says.`;
			else if (d.has_totals)
				said += `${state.filter ? "All rows are" : "Sum:"} ${exact(f.all)}, what the allocator says, to the byte.`;
			else
				said += `Sum: ${exact(f.all)}. ${d.name === "cpu" ? "The CPU’s" : "This"} allocator tells no total to compare with.`;
		} else if (f.measure === "grew") {
			const off = f.all - (f.end.allocated - f.begin.allocated);
			said += `${bytes(f.begin.allocated)} at the beginning, ${bytes(f.end.allocated)} at the end: ` +
				(off ? `the rows differ from that by ${exact(Math.abs(off))}.` : `the rows add up to the difference, ${exact(f.all)}.`);
		} else {
			said += `Sum: ${exact(f.all)} ${Page.MEASURES[f.measure][1]}.`;
		}
		$("sum").textContent = said;
		$("sum").classList.toggle("warn", f.measure === "live" && f.all !== f.end.allocated);
	}

	// Rows from the page's head, used until the events are loaded.
	function fromHead() {
		const list_ = (head.rows ?? []).map(r => ({
			row: r, rows: 1, category: r.category ?? "", categories: new Set([r.category]), modules: new Set([r.module ?? ""]),
			module: r.module ?? "", place: Page.placeOf(r), places: new Set(),
		}));
		const size = Float64Array.from(head.rows ?? [], r => r.bytes);
		now = { list: list_, bytes: size, count: Float64Array.from(head.rows ?? [], r => r.count), order: list_.map((x, i) => i), most: Math.max(1, ...size), sum: Page.device().peak_allocated };
		list.update(now.order.length);
		$("sum").textContent = "Reading the events…";
	}

	function update() {
		if (!state.ready) {
			fromHead();
			return;
		}
		const f = Page.figures();
		now = Page.grouped(state.by, f);
		$("table-title").textContent = f.measure === "live" ? "What is there" : { allocated: "Allocated in the window", kept: "Kept of the window", grew: "Grew in the window" }[f.measure];
		now.of = f.bytes;
		now.sum = f.sum;
		now.most = 0;
		for (const g of now.order)
			now.most = Math.max(now.most, Math.abs(now.bytes[g]));
		order();
		list.update(now.order.length);
		sum(f);
	}

	function start() {
		columns();
		$("by").addEventListener("change", e => Page.set({ by: e.target.value }));
		$("copy").addEventListener("click", copy);
		Page.watch(["by", "moment", "from", "measure", "filter", "device", "ready", "theme"], changed => {
			if (changed.has("by")) {
				$("by").value = state.by;
				columns();
			}
			if (state.ready || changed.has("theme"))
				update();
		});
		update();
	}

	Page.table = { start, copy, tsv };
})();
