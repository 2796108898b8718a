// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The flame graph of the selection, on a canvas. The tree of all stacks is built once; a brush changes only the
// figures.
"use strict";
(() => {
	const { state, el, colour } = Page;
	const { bytes, count, percent, NOTES } = Words;
	const flames = new Flames([], 20, 0.6), ROW = flames.row;
	flames.options.byCount = false;
	let less = 0, box = null, scroll, canvas, says, search, twin, reset;

	// What a window has less of is not drawn: less is its sum.
	function weigh() {
		const f = Page.figures(), by = flames.options.byCount ? f.count : f.bytes;
		flames.values = flames.sum(by.map(v => Math.max(0, v)));
		less = by.reduce((sum, v) => sum - Math.min(0, v), 0);
	}

	const size = o => o.more ? o.rest : flames.values[o.n];
	const amount = v => flames.options.byCount ? Words.blocks(v) : bytes(v);

	// ---- drawing

	function draw() {
		if (!box || !flames.values)
			return;
		const width = scroll.clientWidth, height = flames.layout(width), { drawn } = flames;
		const c = Page.fit(canvas, width, height);
		c.textBaseline = "middle";
		for (const o of drawn)
			paint(c, o);
		canvas.setAttribute("aria-label", `Flame graph: ${amount(flames.values[0])}, ${count(drawn.length)} frames drawn. ${says.textContent}`);
		reset.disabled = flames.zoom === 0;
		tell();
		twin();
	}

	function paint(c, o) {
		const { hits } = flames, f = flames.frameOf(o.n), hit = !o.more && flames.hit(o.n);
		const w = Math.max(flames.thin, o.w - (o.w > 3 ? 1 : 0));
		c.globalAlpha = o.above ? 0.6 : hits && !hit ? 0.35 : 1;
		c.fillStyle = o.more ? colour("f-more") : colour("f-" + (f ? f.kind : "root"));
		c.fillRect(o.x, o.y, w, ROW - 1);
		c.globalAlpha = 1;
		if (hit) {
			c.strokeStyle = colour("mark");
			c.lineWidth = 1.5;
			c.strokeRect(o.x + 0.75, o.y + 0.75, Math.max(0.5, w - 1.5), ROW - 2.5);
		}
		if (o.n === flames.at && !o.more && document.activeElement === canvas) {
			c.strokeStyle = colour("ink");
			c.lineWidth = 2;
			c.strokeRect(o.x + 1, o.y + 1, Math.max(1, w - 2), ROW - 3);
		}
		if (o.more || w < 26)
			return;
		c.fillStyle = colour("f-ink");
		c.globalAlpha = hits && !hit ? 0.55 : 1;
		c.font = (f && f.kind === "user" ? "600 " : "") + "11.5px " + colour("font");
		const room = w - 8, right = w > 200 ? amount(flames.values[o.n]) : "";
		const side = right ? c.measureText(right).width + 10 : 0;
		const label = Page.clipText(c, flames.short(o.n), room - side);
		c.fillText(label, o.x + 4, o.y + ROW / 2);
		let used = c.measureText(label).width;
		c.globalAlpha *= 0.68;
		c.font = "11px " + colour("font");
		if (f && f.file && room - side - used > 60)
			c.fillText(Page.clipText(c, Flames.base(f), room - side - used - 8), o.x + 12 + used, o.y + ROW / 2);
		if (right)
			c.fillText(right, o.x + w - c.measureText(right).width - 4, o.y + ROW / 2);
		c.globalAlpha = 1;
	}

	// Shares are of what the graph shows: under a filter, of the filtered memory.
	const ofAll = () => state.filter ? " of the filtered memory" : " of all";

	function lines(o) {
		if (o.more)
			return [`${count(o.more)} frames too narrow to draw`, `${amount(o.rest)} · zoom in to see them`];
		const { values, depth, zoom } = flames, f = flames.frameOf(o.n);
		const share = [amount(values[o.n]), percent(values[o.n], values[0]) + ofAll()];
		if (zoom && depth[o.n] >= depth[zoom])
			share.push(percent(values[o.n], values[zoom]) + " of the zoomed frame");
		return [flames.name(o.n), share.join(" · "), f ? Flames.location(f) || NOTES[f.name] || "" : ""];
	}

	function tell() {
		const { values, zoom } = flames;
		if (!values[0]) {
			says.textContent = state.from !== null && state.measure === "grew" ? "Nothing grew in this window." : "Nothing to show here.";
			return;
		}
		let text = lines({ n: flames.at }).slice(0, 2).join(" · ");
		if (flames.hits) {
			const m = flames.matched();
			text = m ? `${percent(m, values[zoom])} matched · ${amount(m)}` : "no match";
		} else if (less > 0) {
			text += ` · not shown: ${amount(less)} that was freed`;
		}
		says.textContent = text;
	}

	// ---- pointer and keyboard

	const hitAt = e => {
		const r = canvas.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top;
		return flames.drawn.findLast(o => y >= o.y && y < o.y + ROW && x >= o.x && x < o.x + Math.max(1, o.w));
	};

	function zoomTo(n) {
		Page.hideTip();
		flames.zoom = flames.at = n;
		draw();
		if (!flames.options.icicle)
			scroll.scrollTop = scroll.scrollHeight;
	}

	function step(key) {
		const next = flames.step(key);
		if (!next)
			return;
		draw();
		if (next.y < scroll.scrollTop)
			scroll.scrollTop = next.y;
		else if (next.y + ROW > scroll.scrollTop + scroll.clientHeight)
			scroll.scrollTop = next.y + ROW - scroll.clientHeight;
	}

	function filterTo(n) {
		const f = flames.frameOf(n);
		if (!f)
			return;
		if (f.kind === "module")
			Page.find([Page.filter.term("stack", f.name)]);
		else if (f.file)
			Page.find([Page.filter.term("stack", f.file + ":" + f.line)]);
	}

	function events() {
		canvas.addEventListener("click", e => {
			const o = hitAt(e);
			canvas.focus({ preventScroll: true });
			if (o)
				zoomTo(o.n);
		});
		canvas.addEventListener("pointermove", e => {
			const o = e.pointerType === "mouse" ? hitAt(e) : null;
			canvas.style.cursor = o ? "pointer" : "";
			if (o)
				Page.tip(lines(o), e.clientX, e.clientY);
			else
				Page.hideTip();
		});
		canvas.addEventListener("pointerleave", Page.hideTip);
		canvas.addEventListener("focus", draw);
		canvas.addEventListener("blur", draw);
		canvas.addEventListener("keydown", e => {
			if (e.ctrlKey || e.metaKey || e.altKey || e.shiftKey)
				return;
			if (["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home"].includes(e.key))
				step(e.key);
			else if (e.key === "Enter" || e.key === " ")
				zoomTo(flames.at);
			else if (e.key === "f")
				filterTo(flames.at);
			else if (e.key === "Escape" && flames.zoom)
				zoomTo(flames.hits ? 0 : flames.parent[flames.zoom]);
			else
				return;
			e.preventDefault();
			e.stopPropagation();
		});
		search.addEventListener("input", () => {
			flames.search(search.value);
			draw();
		});
		search.addEventListener("keydown", e => {
			if (e.key !== "Escape")
				return;
			e.stopPropagation();
			e.preventDefault();
			if (!search.value)
				canvas.focus();
			search.value = "";
			flames.search("");
			draw();
		});
	}

	// ---- the view

	function renew(changed) {
		if (!state.ready || !box)
			return;
		if (!flames.values) {
			flames.frames = Page.frames;
			flames.build(Page.rows.map(r => r.stack), id => Array.from(Page.stack(id)));
			flames.search(search.value);
		}
		flames.title = (state.filter ? "Filtered memory of " : "All of ") + Page.device().name;
		if (changed?.has("device"))
			flames.zoom = flames.at = 0;
		weigh();
		if (!flames.values[flames.zoom])
			flames.zoom = 0;
		if (!flames.values[flames.at])
			flames.at = flames.zoom;
		draw();
	}

	function option(key, text, title) {
		const { options } = flames;
		const box_ = el("input", { type: "checkbox", checked: options[key], onchange: e => {
			options[key] = e.target.checked;
			if (key === "leafFirst")
				flames.zoom = flames.at = 0;
			if (key === "hideTorch" || key === "leafFirst")
				flames.values = null; // for another tree
			renew();
			if (key === "icicle" && !options.icicle)
				scroll.scrollTop = scroll.scrollHeight;
		} });
		return el("label", { className: "check", title }, box_, text);
	}

	function open(where) {
		box = where;
		canvas = el("canvas", { tabIndex: 0, role: "img", className: "flame" });
		scroll = el("div", { className: "scroll" }, canvas);
		says = el("output", { className: "quiet says" });
		search = el("input", { type: "search", placeholder: "Search frames", "aria-label": "Search frames", autocomplete: "off", spellcheck: false, value: search?.value ?? "", id: "flame-search" });
		reset = el("button", { type: "button", textContent: "Reset zoom", disabled: true, onclick: () => zoomTo(0) });
		const details = el("details", { className: "twin" }, el("summary", { textContent: "As a table" }), el("div"));
		twin = Page.twin(details, () => ({
			columns: ["frame", flames.options.byCount ? "blocks" : "bytes", "%" + ofAll(), "file"],
			rows: flames.drawn.filter(o => !o.more && !o.above).sort((a, b) => a.depth - b.depth || size(b) - size(a)).slice(0, 200)
				.map(o => ["\u00a0".repeat(2 * o.depth) + flames.name(o.n), count(size(o)), percent(size(o), flames.values[0]), lines(o)[2]]),
		}));
		box.replaceChildren(el("div", { className: "bar thin" }, search, option("hideTorch", "Hide torch internals", "Leave out frames inside PyTorch"),
			option("leafFirst", "Allocating line first", "The graph from the allocating line to its callers"), option("icicle", "Root on top"),
			option("byCount", "Blocks", "Width by number of blocks, not bytes"), reset), says, scroll, details);
		events();
		new ResizeObserver(draw).observe(scroll);
		renew();
	}

	Page.views.flame = { title: "Flame graph", open, renew, close: () => { box = null; },
		sum: () => flames.values?.[0], drawn: () => flames.drawn.map(o => ({ ...o, name: o.more ? "" : flames.name(o.n), value: size(o) })) };
})();
