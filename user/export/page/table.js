// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Memory as a table by line, category, module or stack, for a moment or a window.
"use strict";
(() => {
	const { $, head, state, el } = Page;
	const { bytes, count, percent } = Words;
	// "bar" is a bar of the size; it has no title.
	const COLUMNS = {
		line: ["size", "share", "bar", "count", "category", "phase", "place", "module"],
		stack: ["size", "share", "bar", "count", "category", "phase", "place", "module"],
		category: ["size", "share", "bar", "count", "category"],
		module: ["size", "share", "bar", "count", "category", "module"],
		scope: ["size", "share", "bar", "count", "category", "scope"],
	};
	const TITLES = { size: "Size", share: "%", count: "Blocks", category: "Role", phase: "Phase", module: "Module", scope: "Scope", place: "Location" };
	// Columns of lines and stacks that are hidden if no row of the device says anything there, as in `report`.
	const SAYS = {
		category: r => r.category && r.category !== "unknown",
		phase: r => r.before_attach ? !Page.onHost() : r.phase && r.phase !== "other",
		module: r => Boolean(r.module),
	};
	let now = null, list = null, sort = { column: "size", down: true };
	let silent = new Set();
	const unfolded = new Set(); // places of the groups that show their tensors

	const rowOf = i => now.shown[i];
	const hides = c => (state.by === "line" || state.by === "stack") && silent.has(c);
	const shownColumns = () => COLUMNS[state.by].filter(c => !hides(c));

	function findSilent() {
		const rows = state.ready ? Page.rows.filter(r => r.device === state.device) : head.rows ?? [];
		silent = new Set(Object.keys(SAYS).filter(c => rows.length && !rows.some(SAYS[c])));
	}

	function make() {
		return el("div", { role: "row" }, ...shownColumns().map(c =>
			el("span", { role: c === "bar" ? "presentation" : "gridcell", className: "c-" + c }, c === "bar" ? el("i", { className: "bar-fill" }) : null)));
	}

	function fill(e, i) {
		const x = now.shown[i], g = x.group;
		e.classList.toggle("inner", Boolean(x.of));
		if (x.parts)
			e.setAttribute("aria-expanded", String(unfolded.has(g.place)));
		else
			e.removeAttribute("aria-expanded");
		shownColumns().forEach((c, k) => {
			const cell = e.children[k];
			if (c === "bar")
				bar(cell.firstChild, x);
			else if (c === "category")
				category(cell, g);
			else
				cell.textContent = text(c, x);
			if (c === "place")
				cell.title = title(g);
			else if (c === "module")
				cell.title = moduleTitle(g);
			else if (c === "size")
				cell.title = `${count(x.bytes)} bytes`;
		});
	}

	function bar(i, x) {
		i.style.transform = `scaleX(${now.most ? Math.min(1, Math.abs(x.bytes) / now.most) : 0})`;
		i.style.background = x.bytes < 0 ? Page.colour("less") : x.group.category ? Page.categoryColour(x.group.category) : mix(x.group);
	}

	function category(cell, g) {
		const text = g.category ? Words.role(g.category) : g.categories.size + " roles";
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

	function text(c, x) {
		const g = x.group;
		switch (c) {
		case "size": return bytes(x.bytes);
		case "share": return Words.share(x.bytes, now.sum);
		case "count": return g.row.nothing && !x.count ? "–" : count(x.count);
		case "module": return g.module;
		case "scope": return g.row.nothing ? "" : g.row.scope || (g.row.before_attach ? Words.before() : Words.OUTSIDE);
		case "phase": return g.row.before_attach ? Words.before() : Words.phase(g.row.phase);
		default: return (x.parts ? unfolded.has(g.place) ? "▾ " : "▸ " : "") + g.place;
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
			lines.push("Allocated in backward, for this line of forward.");
		return lines.join("\n");
	}

	function moduleTitle(g) {
		const names = [...g.modules].slice(0, 30).map(m => m || "(no module)");
		if (g.modules.size > 30)
			names.push(Words.more(g.modules.size - 30, "module"));
		return g.modules.size > 1 ? names.join("\n") : g.module;
	}

	// Filters all views to this row. A click on the mark of a group unfolds it.
	function use(i, e) {
		const x = rowOf(i), g = x?.group, term = Page.filter.term;
		if (!g || !state.ready)
			return;
		if (x.parts && e.type === "click" && e.target.closest(".c-place")) {
			fold(i);
			return;
		}
		const terms = [];
		if (state.by === "category" || (g.category && state.by !== "module" && state.by !== "scope"))
			terms.push(term("category", g.row.category));
		if (state.by === "module")
			terms.push(term("module", g.row.module));
		else if (state.by === "scope")
			terms.push(...g.row.before_attach ? ["source:census"] : [term("scope", g.row.scope ?? "")]);
		else if (g.row.file)
			terms.push(Page.filter.line(g.row));
		else if (g.row.before_attach && state.by !== "category")
			terms.push(...beforeTerms(x).filter(t => !terms.includes(t)));
		if ((state.by === "line" || state.by === "stack") && !g.row.before_attach && g.row.phase)
			terms.push(term("phase", g.row.phase));
		Page.find(terms);
	}

	// Terms for memory from before attach: the name, or the module of a group with several.
	function beforeTerms(x) {
		const { group: g } = x, term = Page.filter.term;
		if (!x.parts)
			return g.row.name ? [term("name", g.row.name)] : ["source:census"];
		const names = g.of.map(r => Page.rows[r].name ?? ""), first = names[0];
		const n = [...first].findIndex((c, k) => names.some(name => name[k] !== c));
		return ["source:census", ...(g.moduleName ? [term("category", g.row.category), term("module", g.moduleName)] : n > 2 ? [term("name", first.slice(0, n))] : [])];
	}

	function fold(i, to) {
		const x = rowOf(i), place = x?.group.place;
		if (!x?.parts || unfolded.has(place) === to)
			return false;
		if (!unfolded.delete(place))
			unfolded.add(place);
		entries();
		list.update(now.shown.length);
		return true;
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

	// The rows of the table: groups, and the tensors of those that are unfolded.
	function entries() {
		now.shown = [];
		for (const id of now.order) {
			const group = now.list[id], parts = now.of && Page.parts(group), x = { group, bytes: now.bytes[id], count: now.count[id], parts: parts?.length > 1 ? parts : null };
			now.shown.push(x);
			if (!x.parts || !unfolded.has(group.place))
				continue;
			const inner = parts.map(part => ({ group: part, of: x, bytes: part.of.reduce((a, r) => a + now.of[r], 0), count: part.of.reduce((a, r) => a + now.counts[r], 0) }));
			now.shown.push(...inner.filter(p => p.bytes || p.count).sort((a, b) => b.bytes - a.bytes || (a.group.place < b.group.place ? -1 : 1)));
		}
	}

	function columns() {
		if (hides(sort.column))
			sort = { column: "size", down: true };
		const header = el("div", { className: "row-head", role: "row" }, ...shownColumns().map(c => c === "bar" ? el("span", { className: "c-bar", role: "presentation" }) : el("button", {
			type: "button",
			role: "columnheader",
			className: "c-" + c,
			"aria-sort": sort.column === c ? sort.down ? "descending" : "ascending" : "none",
			textContent: TITLES[c],
			title: c === "share" ? "Share of the memory that the table shows" : "",
			onclick: () => {
				sort = { column: c, down: sort.column === c ? !sort.down : !["place", "module", "scope", "category", "phase"].includes(c) };
				columns();
				update();
			},
		})));
		$("table").className = ["fill", "by-" + state.by, ...Object.keys(SAYS).filter(hides).map(c => "no-" + c)].join(" ");
		list ??= Page.list($("table"), { make, fill, use, keys });
		list.reset(header);
	}

	function keys(e, i) {
		if (e.key === "c")
			copy();
		else if (e.key === "ArrowRight" || e.key === "ArrowLeft")
			return fold(i, e.key === "ArrowRight");
		else
			return false;
		return true;
	}

	// For programs: names as in the recording.
	function tsv() {
		const lines_ = state.by === "line" || state.by === "stack", has = c => COLUMNS[state.by].includes(c);
		const fields = {
			bytes: (g, id) => now.bytes[id],
			count: (g, id) => now.count[id],
			...(has("category") ? { category: g => g.category } : {}),
			...(lines_ ? { phase: g => g.row.phase ?? "" } : {}),
			...(has("module") ? { module: g => g.moduleName } : {}),
			...(lines_ ? { place: g => g.place } : {}),
			file: g => lines_ ? g.row.file ?? "" : "",
			line: g => lines_ ? g.row.line || "" : "",
		};
		const lines = [Object.keys(fields).join("\t")];
		for (const id of now.order)
			// Prevent spreadsheets from parsing a name as a formula.
			lines.push(Object.values(fields).map(f => f(now.list[id], id)).map(v => (typeof v === "string" && /^[=+\-@\uff1d\uff0b\uff0d\uff20]./.test(v) ? "'" : "") +
				String(v).replace(/[\t\n\r]/g, " ")).join("\t"));
		return lines.join("\n") + "\n";
	}

	function copy() {
		const all = tsv();
		const done = ok => Page.say(ok ? `${count(now.order.length)} ${now.order.length === 1 ? "row" : "rows"} copied.` : "The browser does not allow this page to copy.");
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

	// States the sum of the rows, and whether it is the allocator's total.
	function sum(f) {
		const all = { live: "Total", grew: "Growth", allocated: "Allocated in the window:", kept: "Kept from the window:" }[f.measure];
		const off = f.measure === "live" ? f.all - f.end.allocated : f.measure === "grew" ? f.all - (f.end.allocated - f.begin.allocated) : 0;
		let said = state.filter ? `Filter: ${bytes(f.sum)}${f.all ? `, ${percent(f.sum, f.all)}` : ""} of ${bytes(f.all)}. Percentages are of the filtered memory.` : `${all} ${signed(f.all, f.measure)}`;
		if (f.measure === "grew" && !state.filter)
			said += `, from ${bytes(f.begin.allocated)} to ${bytes(f.end.allocated)}`;
		if (off)
			said += `. The rows add up to ${bytes(Math.abs(off))} ${off < 0 ? "less" : "more"} than the allocator’s total.`;
		$("sum").textContent = said;
		$("sum").title = `${count(state.filter ? f.sum : f.all)} bytes`;
		$("sum").classList.toggle("warn", off !== 0);
	}
	const signed = (n, measure) => (measure === "grew" && n > 0 ? "+" : "") + bytes(n);

	// Rows from the page's head, used until the events are loaded.
	function fromHead() {
		const rows = head.rows ?? [], size = Float64Array.from(rows, r => r.bytes);
		const list_ = rows.map(r => ({
			row: r, category: r.category ?? "", categories: new Set([r.category]), modules: new Set([r.module ?? ""]),
			module: Words.module(r), place: Page.placeOf(r), places: new Set(),
		}));
		now = { list: list_, bytes: size, count: Float64Array.from(rows, r => r.count), order: list_.map((x, i) => i), most: Math.max(1, ...size), sum: Page.device().peak_allocated };
		entries();
		list.update(now.shown.length);
		$("sum").textContent = "Reading the events…";
	}

	function update() {
		if (!state.ready) {
			fromHead();
			return;
		}
		const f = Page.figures();
		now = Page.grouped(state.by, f);
		$("table-title").textContent = { live: "Live memory", allocated: "Allocated in the window", kept: "Kept from the window", grew: "Growth in the window" }[f.measure];
		now.of = f.bytes;
		now.counts = f.count;
		now.sum = f.sum;
		now.most = 0;
		for (const g of now.order)
			now.most = Math.max(now.most, Math.abs(now.bytes[g]));
		order();
		entries();
		list.update(now.shown.length);
		sum(f);
	}

	function start() {
		findSilent();
		columns();
		$("by").addEventListener("change", e => Page.set({ by: e.target.value }));
		$("copy").addEventListener("click", copy);
		Page.watch(["by", "moment", "from", "measure", "filter", "device", "ready", "theme"], changed => {
			if (changed.has("device") || changed.has("ready"))
				findSilent();
			if (["by", "device", "ready"].some(x => changed.has(x))) {
				$("by").value = state.by;
				columns();
			}
			if (state.ready || changed.has("theme"))
				update();
		});
		update();
	}

	Page.table = { start, copy, tsv, rows: () => now.shown };
})();
