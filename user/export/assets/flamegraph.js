// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Draws the data written by flamegraph.c. Names come from a traced program: use them only as textContent.
"use strict";
(() => {
	const { bytes, count, blocks, percent, seconds, step, phase, command, NOTES } = Words;
	const data = JSON.parse(document.getElementById("data").textContent);
	const { $, el, tip, hideTip } = Dom;
	const graph = $("graph");
	if (data.diff)
		Change.expand(data);

	// Indexed by enum frame_kind.
	const KINDS = [
		["user", "Your code"],
		["module", "nn.Module call"],
		["torch", "PyTorch"],
		["installed", "Other libraries"],
		["stdlib", "Standard library"],
		["note", "No Python stack"],
	];

	// ---- frames

	const frames = [];
	for (let i = 0; i < data.frames.length; i += 4)
		frames.push({
			name: data.strings[data.frames[i]],
			file: data.strings[data.frames[i + 1]] ?? "",
			line: data.frames[i + 2],
			kind: KINDS[data.frames[i + 3]][0],
			was: data.was?.[i / 4] ?? 0, // with two recordings: the line in the old one, if different
		});

	// With layer numbers merged, blocks.0.attn and blocks.1.attn are one frame, blocks.*.attn.
	const merged = frames.map((f, i) => i);
	const starred = new Map();
	frames.slice().forEach((f, i) => {
		const name = f.kind === "module" ? f.name.replace(/(^|\.)\d+(?=[. ]|$)/g, "$1*") : f.name;
		if (name === f.name)
			return;
		if (!starred.has(name))
			starred.set(name, frames.push({ ...f, name }) - 1);
		merged[i] = starred.get(name);
	});

	// ---- state

	const main = Math.max(0, data.devices.findIndex(d => d.main));
	const OPTIONS = [["hide-torch", "hideTorch"], ["merge", "merge"], ["leaf-first", "leafFirst"], ["icicle", "icicle"]];
	const state = { device: main, view: 0 };
	const flames = new Flames(frames, parseInt(getComputedStyle(document.documentElement).getPropertyValue("--row"), 10), 0.7);
	let sums; // by node: blocks, and with two recordings the old and new sizes; unknown: whether blocks are missing

	const device = () => data.devices[state.device];
	const view = () => device().views[state.view];
	const total = v => v.total ?? (v.total = v.bytes.reduce((a, b) => a + b, 0));

	// ---- tree: the stacks of a view under the current options

	function stackOf(node) {
		const out = [];
		for (; node >= 0; node = data.nodes.parent[node]) {
			const f = data.nodes.frame[node];
			out.push(flames.options.merge ? merged[f] : f);
		}
		return out.reverse();
	}

	function build() {
		const v = view();
		flames.title = "All of " + device().name;
		flames.build(v.node, stackOf);
		flames.values = flames.sum(v.bytes);
		sums = { count: flames.sum(v.count), old: v.old && flames.sum(v.old), new: v.new && flames.sum(v.new),
			unknown: flames.sum(v.bytes.map((b, i) => b && !v.count[i] ? 1 : 0)) }; // before attach: the number of blocks is not known
	}

	function showMatched() {
		graph.classList.toggle("searching", flames.hits !== null);
		const sum = flames.hits ? flames.matched() : 0;
		$("matched").textContent = !flames.hits ? "" : sum ? `${percent(sum, flames.values[flames.zoom])} matched · ${bytes(sum)}` :
			flames.zoom ? "no match in this frame" : "no match";
	}

	// ---- drawing

	function place(o, i) {
		const { n, w } = o, f = flames.frameOf(n), size = flames.values[n];
		const colour = data.diff ? Change.colour(sums.old[n], sums.new[n]) : f?.kind ?? "root";
		const cls = [colour, flames.hit(n) && "hit", o.above && "above", w < 12 && "thin", w < 72 && "narrow"];
		o.el = o.more ? el("div", { className: "f thin more", "aria-hidden": "true" }) : el("div", {
			className: ["f", ...cls].filter(Boolean).join(" "), id: "f" + i, role: "treeitem", "aria-level": o.depth + 1,
			"aria-label": flames.name(n) + ", " + (data.diff ? change(n) + ", " : "") + bytes(size) + ", " + percent(size, flames.values[0]),
		}, ...texts(n, f, w));
		o.el.dataset.i = i;
		o.el.style.left = o.x + "px";
		o.el.style.top = o.y + "px";
		o.el.style.width = (o.more ? w : Math.max(w - (w > 3 ? 1 : 0), flames.thin)) + "px";
		return o.el;
	}

	// The texts that have room in a frame.
	function texts(n, f, width) {
		const span = (cls, text, ...inner) => el("span", { className: cls, textContent: text }, ...inner);
		return [
			width >= 36 && span("t", flames.short(n, width < 110), f?.file && width > 90 ? span("w", Flames.base(f)) : null),
			width > 210 && span("b", data.diff ? Change.signed(sums.new[n] - sums.old[n]) : bytes(flames.values[n])),
		].filter(Boolean);
	}

	const change = n => Change.words(sums.old[n], sums.new[n]);

	function draw() {
		graph.style.height = flames.layout(graph.clientWidth) + "px";
		graph.replaceChildren(...flames.drawn.map(place));
		$("reset").disabled = !flames.zoom;
		showMatched();
		markAt();
	}

	// ---- details and tooltip

	function numbers(o) {
		const { values, depth, zoom } = flames, all = values[0];
		if (o.more)
			return [`${count(o.more)} frames too narrow to draw`, bytes(o.rest) + " · " + percent(o.rest, all), "Zoom in to see them."];
		const n = o.n, f = flames.frameOf(n);
		const parts = [data.diff ? change(n) : bytes(values[n]), percent(values[n], all) + " of all"];
		if (zoom && depth[n] > depth[zoom])
			parts.push(percent(values[n], values[zoom]) + " of the zoomed frame");
		if (!sums.unknown[n] && sums.count[n])
			parts.push(blocks(sums.count[n]));
		const where = f ? Flames.location(f) + (f.was ? ", moved from :" + f.was : "") || NOTES[f.name] : "";
		return [flames.name(n), parts.join(" · "), where ?? ""];
	}

	function showDetails(o) {
		const [name, line, where] = o ? numbers(o) : ["", "", ""];
		$("d-name").textContent = name;
		$("d-numbers").textContent = line;
		$("d-where").textContent = where;
	}

	const drawnAt = target => {
		const f = target instanceof Element ? target.closest(".f") : null;
		return f ? flames.drawn[f.dataset.i] : null;
	};

	// ---- zoom and keyboard focus

	function zoomTo(n) {
		hideTip();
		flames.zoom = flames.at = n;
		draw();
		showDetails({ n });
	}

	function markAt() {
		const focused = document.activeElement === graph;
		graph.removeAttribute("aria-activedescendant");
		for (const o of flames.drawn) {
			const here = focused && !o.more && o.n === flames.at;
			o.el.classList.toggle("at", here);
			if (here) {
				graph.setAttribute("aria-activedescendant", o.el.id);
				o.el.scrollIntoView({ block: "nearest" });
			}
		}
	}

	function move(key) {
		const next = flames.step(key);
		if (!next)
			return;
		markAt();
		showDetails(next);
	}

	// ---- changes of the state

	function rebuild() {
		build();
		headline();
		const nothing = !flames.values[0];
		graph.hidden = nothing;
		$("empty").hidden = !nothing;
		$("empty").textContent = `No memory is allocated on ${device().name} here.`;
		showDetails(null);
		if (!nothing) {
			draw();
			showDetails({ n: flames.zoom });
		}
		const v = view();
		$("notes").textContent = v.smaller ? `The frame “[smaller stacks]” combines the ${count(v.smaller)} smallest stacks.` : "";
	}

	function diffHeadline() {
		const { old, new: now } = data.diff;
		$("headline").replaceChildren(Change.signed(now.bytes - old.bytes) + " ",
			el("small", { textContent: Change.headline(data, view(), flames.values[0]) }));
		document.title = `${Change.signed(now.bytes - old.bytes)}, ${device().name} · ${old.name} → ${now.name}`;
		graph.setAttribute("aria-label", `Flame graph of what changed: ${Change.words(old.bytes, now.bytes)}`);
	}

	function headline() {
		const v = view(), d = device();
		if (data.diff)
			return diffHeadline();
		const when = {
			peak: `at the peak on ${d.name}`,
			oom: `when ${d.name} ran out of memory`,
			end: `at the end on ${d.name}`,
			total: `allocated in total on ${d.name}`,
		}[v.id] ?? `at ${v.id} on ${d.name}`;
		const parts = [when];
		if (v.id === "peak" || v.id === "oom")
			parts[0] += v.time !== undefined ? `, ${seconds(v.time)}` : "";
		const inside = [v.step !== undefined && step(v.step), v.phase && phase(v.phase)].filter(Boolean);
		if (inside.length)
			parts.push(inside.join(", "));
		if (v.reserved)
			parts.push(`${bytes(v.reserved)} reserved`);
		$("headline").replaceChildren(bytes(flames.values[0]) + " ", el("small", { textContent: parts.join(" · ") }));
		document.title = `${bytes(flames.values[0])} ${v.label.toLowerCase()}, ${d.name} · PID ${data.facts.pid ?? "?"} · ${command(data)}`;
		graph.setAttribute("aria-label", `Flame graph: ${bytes(flames.values[0])} ${when}`);
	}

	function facts() {
		if (data.diff)
			return Change.facts(data, $("facts"), $("command"));
		const f = data.facts;
		const items = [
			f.pid && `PID ${f.pid}`,
			f.torch && `torch ${f.torch}`,
			f.python && `Python ${f.python}`,
			seconds(data.duration - (data.window_start ?? 0)),
			data.window_start !== undefined && `window from ${seconds(data.window_start)} on`,
			`${count(data.events)} events`,
		].filter(Boolean);
		$("facts").append(...items.map(text => el("li", { textContent: text })),
			el("li", { textContent: `${count(data.lost)} lost`, className: data.lost ? "warn" : "" }));
		if (data.detail)
			$("facts").append(el("li", { textContent: "reduced detail", className: "warn", title: Words.detail(data.detail) }));
		$("command").textContent = command(data);
	}

	function legend() {
		const used = new Set(), seen = new Set();
		for (const v of data.devices.flatMap(d => d.views))
			for (let n of v.node)
				for (; n >= 0 && !seen.has(n); n = data.nodes.parent[n]) {
					seen.add(n);
					used.add(frames[data.nodes.frame[n]].kind);
				}
		for (const [cls, name] of data.diff ? Change.LEGEND : KINDS.filter(([kind]) => used.has(kind)))
			$("legend").append(el("li", {}, el("i", { className: cls }), name));
	}

	function views() {
		const buttons = device().views.map((v, i) => el("button", { type: "button", role: "radio", "aria-checked": String(i === state.view),
			tabIndex: i === state.view ? 0 : -1, onclick: () => chooseView(i) }, v.label, el("span", { textContent: bytes(total(v)) })));
		$("views").replaceChildren(...buttons);
	}

	function chooseView(i) {
		const had = $("views").contains(document.activeElement);
		state.view = i;
		views();
		rebuild();
		if (had)
			$("views").children[i].focus();
	}

	function devices() {
		$("device-box").hidden = data.devices.length < 2;
		$("device").append(...data.devices.map((d, i) => el("option", { value: i, textContent: d.name, selected: i === state.device })));
	}

	// ---- events

	graph.addEventListener("click", e => {
		const o = drawnAt(e.target);
		graph.focus({ preventScroll: true });
		if (o)
			zoomTo(o.n);
	});
	graph.addEventListener("pointermove", e => {
		const o = drawnAt(e.target);
		if (!o || e.pointerType !== "mouse") {
			hideTip();
			return;
		}
		tip(numbers(o), e.clientX, e.clientY);
		showDetails(o);
	});
	graph.addEventListener("pointerleave", () => {
		hideTip();
		showDetails({ n: flames.at });
	});
	graph.addEventListener("focus", markAt);
	graph.addEventListener("blur", markAt);
	graph.addEventListener("keydown", e => {
		if (e.ctrlKey || e.metaKey || e.altKey)
			return;
		if (["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home"].includes(e.key))
			move(e.key);
		else if (e.key === "Enter" || e.key === " ")
			zoomTo(flames.at);
		else
			return;
		e.preventDefault();
	});

	$("views").addEventListener("keydown", e => {
		const n = device().views.length;
		const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: n - 1, ArrowUp: n - 1 }[e.key];
		if (!by)
			return;
		e.preventDefault();
		chooseView((state.view + by) % n);
	});

	$("search").addEventListener("input", e => {
		flames.search(e.target.value);
		if (flames.values[0])
			draw();
	});

	addEventListener("keydown", e => {
		const typing = document.activeElement === $("search");
		// A second Ctrl-F opens the browser's own search.
		if (((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "f" && !typing) ||
		    (e.key === "/" && !typing && document.activeElement !== $("device"))) {
			e.preventDefault();
			$("search").focus();
			$("search").select();
		} else if (e.key === "Escape") {
			if (typing && $("search").value) {
				$("search").value = "";
				$("search").dispatchEvent(new Event("input"));
				e.preventDefault();
			} else if (typing) {
				graph.focus();
			} else if (flames.zoom) {
				zoomTo(0);
			}
		}
	});

	$("reset").addEventListener("click", () => zoomTo(0));
	$("device").addEventListener("change", e => {
		const id = view().id;
		state.device = Number(e.target.value);
		state.view = Math.max(0, device().views.findIndex(v => v.id === id));
		views();
		rebuild();
	});
	for (const [id, key] of OPTIONS)
		$(id).addEventListener("change", e => {
			flames.options[key] = e.target.checked;
			rebuild();
			if (id === "icicle" && !flames.options.icicle)
				graph.scrollIntoView({ block: "end" }); // show the root
		});

	let width = 0;
	new ResizeObserver(() => {
		if (graph.clientWidth === width || !flames.values[0])
			return;
		width = graph.clientWidth;
		draw();
	}).observe(graph);

	// Browsers restore form values on reload, so read the state from the form.
	for (const [id, key] of OPTIONS)
		flames.options[key] = $(id).checked;
	flames.search($("search").value);
	$("merge-box").hidden = !starred.size;
	facts();
	devices();
	legend();
	views();
	if (data.diff)
		Change.table(data, frames, $("table"));
	rebuild();
})();
