// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The allocator's segments at the moment, with their blocks and gaps.
"use strict";
(() => {
	const { state, el, colour } = Page;
	const { bytes, count, percent } = Words;
	const LINE = 24, GONE_NEVER = 2 ** 32 - 1;
	let box = null, scroll, canvas, says, twin, segments = [], toScale = false, sort = "gaps", drawn = [], at = -1;

	function collect() {
		const m = state.moment, b = Page.data.blocks(state.device);
		segments = Page.data.segments(state.device, m).map(s => ({ ...s, blocks: [], used: 0, gap: 0 })).sort((x, y) => x.address - y.address);
		if (!b.address)
			return;
		const live = [];
		for (let i = 0; i < b.n; i++)
			if ((b.born[i] <= m || b.born[i] === GONE_NEVER) && b.gone[i] > m)
				live.push(i);
		live.sort((x, y) => b.address[x] - b.address[y]);
		let k = 0;
		for (const i of live) {
			while (k < segments.length && segments[k].address + segments[k].size <= b.address[i])
				k++;
			const s = segments[k];
			if (!s || b.address[i] < s.address)
				continue;
			s.blocks.push(i);
			s.used += b.size[i];
		}
		for (const s of segments) {
			s.gaps = [];
			let from = s.address;
			for (const i of s.blocks) {
				if (b.address[i] > from)
					s.gaps.push([from, b.address[i] - from]);
				from = Math.max(from, b.address[i] + b.size[i]);
			}
			if (from < s.address + s.size)
				s.gaps.push([from, s.address + s.size - from]);
			s.gap = Math.max(0, ...s.gaps.map(g => g[1]));
			s.free = s.size - s.used;
		}
		// Cached memory in a segment with blocks cannot be returned; an empty segment can.
		const stuck = s => s.used ? s.free : -1;
		segments.sort(sort === "gaps" ? (x, y) => stuck(y) - stuck(x) || y.size - x.size : sort === "size" ? (x, y) => y.size - x.size : (x, y) => x.address - y.address);
	}

	const left = () => Math.min(150, scroll.clientWidth * 0.34);

	function draw() {
		if (!box || !state.ready)
			return;
		const width = scroll.clientWidth, height = scroll.clientHeight, b = Page.data.blocks(state.device), pass = Page.maskOf();
		scroll.firstChild.style.height = segments.length * LINE + "px";
		const c = Page.fit(canvas, width, height), x0 = left(), room = width - x0 - 8, most = Math.max(1, ...segments.map(s => s.size));
		const first = Math.max(0, Math.floor(scroll.scrollTop / LINE)), last = Math.min(segments.length, Math.ceil((scroll.scrollTop + height) / LINE));
		drawn = [];
		c.textBaseline = "middle";
		for (let k = first; k < last; k++) {
			const s = segments[k], y = k * LINE - scroll.scrollTop, w = toScale ? Math.max(2, s.size / most * room) : room, per = w / s.size;
			c.fillStyle = colour(k === at && document.activeElement === canvas ? "accent" : "ink");
			c.font = "11.5px " + colour("font");
			c.fillText(bytes(s.size), 4, y + LINE / 2);
			c.fillStyle = colour("soft");
			c.font = "10.5px " + colour("font");
			c.fillText(Page.clipText(c, `${percent(s.used, s.size)} used`, x0 - 78), 74, y + LINE / 2);
			c.fillStyle = colour("gap");
			c.fillRect(x0, y + 3, w, LINE - 6);
			drawn.push({ x: x0, w, y, s, k });
			for (const i of s.blocks)
				block(c, b, pass, i, x0 + (b.address[i] - s.address) * per, b.size[i] * per, y, s, k);
		}
	}

	function block(c, b, pass, i, x, w, y, s, k) {
		c.globalAlpha = pass && !pass[b.row[i]] ? 0.15 : 1;
		c.fillStyle = Page.categoryColour(Page.rows[b.row[i]].category);
		c.fillRect(x, y + 3, Math.max(0.5, w - (w > 3 ? 0.75 : 0)), LINE - 6);
		c.globalAlpha = 1;
		drawn.push({ x, w, y, i, s, k });
	}

	function lines(o) {
		const s = o.s, where = [s.pool && `pool ${s.pool}`, s.stream !== null && s.stream !== undefined && s.stream !== "" && `stream ${s.stream}`, s.expandable && "expandable", s.kind].filter(Boolean).join(", ");
		const segment = `segment of ${bytes(s.size)} at 0x${s.address.toString(16)}${where ? ", " + where : ""}`;
		if (o.i !== undefined) {
			const b = Page.data.blocks(state.device), r = Page.rows[b.row[o.i]];
			return [`${bytes(b.size[o.i])} ${Words.role(r.category)}`, Page.placeOf(r), r.before_attach && Words.before(), r.module, r.name, `at 0x${b.address[o.i].toString(16)}`, segment];
		}
		if (o.gap)
			return [`${bytes(o.gap)} cached`, "reserved, without a block", segment];
		return [segment, `${bytes(s.used)} used by ${Words.blocks(s.blocks.length) || "no block"}`, `${bytes(s.free ?? 0)} cached, largest gap ${bytes(s.gap)}`];
	}

	function hit(e) {
		const r = canvas.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top;
		const o = drawn.findLast(d => y >= d.y && y < d.y + LINE && x >= d.x && x <= d.x + Math.max(1, d.w));
		if (!o || o.i !== undefined)
			return o ?? drawn.find(d => d.i === undefined && y >= d.y && y < d.y + LINE);
		const a = o.s.address + (x - o.x) / o.w * o.s.size, g = (o.s.gaps ?? []).find(v => v[0] <= a && a < v[0] + v[1]);
		return g ? { ...o, gap: g[1] } : o;
	}

	function events() {
		canvas.addEventListener("pointermove", e => {
			const o = hit(e);
			if (o)
				Page.tip(lines(o), e.clientX, e.clientY);
			else
				Page.hideTip();
		});
		canvas.addEventListener("pointerleave", Page.hideTip);
		canvas.addEventListener("click", e => {
			const o = hit(e);
			if (o?.i === undefined)
				return;
			const r = Page.rows[Page.data.blocks(state.device).row[o.i]];
			Page.find(r.file ? [Page.filter.line(r)] : [Page.filter.term("category", r.category)]);
		});
		canvas.addEventListener("keydown", e => {
			const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
			if (!by)
				return;
			at = Math.max(0, Math.min(segments.length - 1, at + by));
			if (at * LINE < scroll.scrollTop)
				scroll.scrollTop = at * LINE;
			else if ((at + 1) * LINE > scroll.scrollTop + scroll.clientHeight)
				scroll.scrollTop = (at + 1) * LINE - scroll.clientHeight;
			draw();
			if (segments[at])
				says.textContent = lines({ s: segments[at] }).join(" · ");
			e.preventDefault();
			e.stopPropagation();
		});
		canvas.addEventListener("focus", draw);
		canvas.addEventListener("blur", draw);
		scroll.addEventListener("scroll", draw, { passive: true });
	}

	function renew() {
		if (!state.ready || !box)
			return;
		collect();
		const size = segments.reduce((a, s) => a + s.size, 0), used = segments.reduce((a, s) => a + s.used, 0), gap = Math.max(0, ...segments.map(s => s.gap));
		says.textContent = segments.length ? `${count(segments.length)} segments, ${bytes(size)}: ${bytes(used)} in blocks, ${bytes(size - used)} cached, largest gap ${bytes(gap)}` :
			Page.device().name === "cpu" ? "The CPU allocator has no segments." : "No segment is known at this moment.";
		draw();
		twin();
	}

	function open(where) {
		box = where;
		canvas = el("canvas", { tabIndex: 0, role: "img", "aria-label": "Segments", className: "stick" });
		scroll = el("div", { className: "scroll lanes" }, el("div", { className: "space" }), canvas);
		says = el("output", { className: "quiet says" });
		const pick = el("select", { onchange: e => { sort = e.target.value; renew(); } },
			...[["gaps", "cached memory"], ["size", "size"], ["address", "address"]].map(([v, t]) => el("option", { value: v, textContent: t, selected: v === sort })));
		const check = el("input", { type: "checkbox", checked: toScale, onchange: e => { toScale = e.target.checked; draw(); } });
		const details = el("details", { className: "twin" }, el("summary", { textContent: "As a table" }), el("div"));
		twin = Page.twin(details, () => ({
			columns: ["address", "size", "in blocks", "cached", "largest gap", "blocks", "pool", "stream"],
			rows: segments.slice(0, 300).map(s => ["0x" + s.address.toString(16), bytes(s.size), bytes(s.used), bytes(s.free ?? 0), bytes(s.gap), count(s.blocks.length), s.pool ?? "", s.stream ?? ""]),
		}));
		box.replaceChildren(el("div", { className: "bar thin" }, el("label", { className: "pick" }, el("span", { className: "quiet", textContent: "Sorted by" }), " ", pick),
			el("label", { className: "check" }, check, "To scale"), says), scroll, details);
		events();
		new ResizeObserver(draw).observe(scroll);
		renew();
	}

	Page.views.segments = { title: "Segments", open, renew, slow: true, close: () => { box = null; }, here: () => Page.device().name !== "cpu" && !Page.onHost(), segments: () => segments };
})();
