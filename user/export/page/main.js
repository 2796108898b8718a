// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Starts the page: heading, selection, keys, and the events once they are loaded.
"use strict";
(() => {
	const { $, head, state, el } = Page;
	const { bytes, count, seconds, percent } = Words;
	const ORDER = ["flame", "growth", "lives", "segments", "modules"];

	// ---- heading: process and reliability of the figures

	function command() {
		const words = head.target?.cmdline;
		// Folders of the interpreter and of the script are left out.
		const script = Array.isArray(words) ? words.findIndex((w, i) => i && !w.startsWith("-")) : -1;
		return Array.isArray(words) && words.length ? words.map((w, i) => i === 0 || (i === script && words[i - 1] !== "-c") ? w.slice(w.lastIndexOf("/") + 1) : w).join(" ") : head.target?.comm ?? head.name ?? "";
	}

	function top() {
		const t = head.target ?? {}, c = head.capture ?? {}, d = Page.device();
		$("command").textContent = command();
		$("command").title = (t.cmdline ?? []).join(" ");
		const facts = [`peak ${bytes(d.peak_allocated ?? 0)}`, t.pid !== undefined && t.pid !== null && `PID ${t.pid}`, t.torch && `torch ${t.torch}`, t.python && `Python ${t.python}`,
			seconds(head.duration - (c.window_start ?? 0)), c.window_start !== undefined && `window from ${seconds(c.window_start)} on`, c.steps && Page.stepsWords(c.steps)];
		$("facts").textContent = facts.filter(Boolean).join("  ·  ");
		const items = [[`${count(c.events ?? 0)} events`, ""], [`${count(c.lost ?? 0)} lost`, c.lost ? "bad" : "good"]];
		if (c.detail?.text)
			items.push(["reduced detail", "bad", Words.detail(c.detail.text)]);
		if (d.drift !== null && d.drift !== undefined)
			items.push(d.drift ? [`totals differ by ${bytes(d.drift)}`, "bad", "The largest difference between the sum of the blocks and the allocator’s own total, after any event."] :
				["totals verified", "good", "After every event the sum of the blocks equals the allocator’s own total."]);
		if (c.complete === false)
			items.push(["recording cut short", "bad"]);
		if (head.host) {
			const [text, title] = Words.host(head.host);
			items.push([text, "", title]);
		}
		if (head.moments === "chosen")
			items.push(["exact at chosen moments", "", "The recording has too many events for one page. Between the chosen moments, only the curve is known."]);
		$("trust").replaceChildren(...items.map(([text, cls, title]) => el("li", { className: cls, textContent: text, title: title ?? "" })));
		const verdict = d.name === "host" && head.host?.verdict.sentence;
		$("verdict").textContent = verdict || "";
		$("verdict").hidden = !verdict;
		$("device-box").hidden = head.devices.length < 2;
		document.title = `${bytes(d.peak_allocated ?? 0)} peak, ${d.name} · ${command()}`;
	}

	function devices() {
		$("device").replaceChildren(...head.devices.map((d, i) => el("option", { value: i, textContent: d.name, selected: i === state.device })));
		$("device").addEventListener("change", e => Page.chooseDevice(Number(e.target.value)));
	}

	// ---- selection as text

	const clock = t => seconds(t, (state.view[1] - state.view[0]) / 100);

	const NEIGHBOURS = 4; // that are shown without pointing at them

	// The other processes on the device when it ran out of memory, or when the process ended badly.
	function neighbours(d, oom) {
		const failed = oom && d.out_of_memory?.find(o => o.number === oom.number)?.other_processes;
		const ended = state.from === null && state.moment === d.moments - 1 && d.other_processes_at_end;
		const { largest: list, count: all } = failed || ended || { largest: [], count: 0 };
		const names = list.slice(0, NEIGHBOURS).map(Words.neighbour), rest = all - names.length;
		$("neighbours").hidden = !list.length;
		$("neighbours").title = list.map(Words.neighbour).join("\n");
		$("neighbours").textContent = `Other processes on this device${failed ? "" : " at the end"}: ${[...names, ...rest > 0 ? [`+ ${count(rest)} more`] : []].join(" · ")}`;
	}

	function say() {
		const d = Page.device(), step = Page.stepAt(state.time);
		const b = (text, cls) => el("b", { textContent: text, className: cls ?? "" });
		const phase = (head.phases ?? []).find(p => p[0] <= state.time && state.time <= p[1]);
		const where = [step && Page.stepWords(step[0]), phase && Words.phase(phase[2])].filter(Boolean).join(", ");
		const oom = state.ready && state.from === null && Page.timeline.oomsHere().find(o => Page.data.at(state.device, o.time) === state.moment);
		neighbours(d, oom);
		if (!state.ready) {
			$("choice-text").replaceChildren("Peak at ", b(clock(d.peak_time ?? 0)), " · ", b(bytes(d.peak_allocated ?? 0)), " allocated");
			return;
		}
		const f = Page.figures(), end = f.end;
		$("choice-text").title = `${state.time.toFixed(9)} s`;
		if (state.from === null) {
			const what = oom ? "Out of memory" : state.moment === peakMoment() ? "Peak" : "Moment";
			$("choice-text").replaceChildren(`${what} at `, b(clock(state.time)), where ? ` · ${where}` : "", " · ", b(bytes(end.allocated)), " allocated",
				end.reserved ? ` · ${bytes(end.reserved)} reserved, ${percent(end.reserved - end.allocated, end.reserved)} of it cached` : "",
			oom ? ` · ${bytes(oom.asked)} requested${oom.file ? ` by ${oom.file.slice(oom.file.lastIndexOf("/") + 1)}:${oom.line}` : ""}${oom.why ? `: ${oom.why}` : ""}` : "");
			return;
		}
		const a = Page.timeOf(state.from), grew = end.allocated - f.begin.allocated, apart = state.time - a;
		$("choice-text").replaceChildren("Window ", b(`${seconds(a, apart)} – ${seconds(state.time, apart)}`), ` · ${count(state.moment - state.from)} ${head.moments === "chosen" ? "moments" : "events"} · `,
			`${bytes(f.begin.allocated)} → `, b(bytes(end.allocated)), ` (${grew > 0 ? "+" : ""}${bytes(grew)})`);
	}

	function measures() {
		$("measures").hidden = state.from === null;
		$("clear-window").hidden = state.from === null;
		$("measures").replaceChildren(...Object.entries(Page.MEASURES).map(([id, [text, title]]) => el("button", {
			type: "button", role: "radio", "aria-checked": String(state.measure === id), title, textContent: text, tabIndex: state.measure === id ? 0 : -1,
			onclick: () => Page.set({ measure: id }),
		})));
	}

	$("measures").addEventListener("keydown", e => {
		const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
		if (!by)
			return;
		const ids = Object.keys(Page.MEASURES), at = (ids.indexOf(state.measure) + by + ids.length) % ids.length;
		e.preventDefault();
		e.stopPropagation();
		Page.set({ measure: ids[at] });
		Page.settle();
		$("measures").children[at].focus();
	});

	let saying = 0;
	Page.say = text => {
		$("filter-says").textContent = text;
		clearTimeout(saying);
		saying = setTimeout(filterSays, 2500);
	};

	function filterSays() {
		if (!state.ready || !state.filter) {
			$("filter-says").textContent = "";
			return;
		}
		const f = Page.figures(), { unknown } = Page.filter.compile(state.filter), nothing = !f.bytes.some(Boolean);
		$("filter-says").title = unknown ? `Fields: ${Page.filter.fields.join(", ")}` : "";
		// A word before a colon may also be text, as in "aten::mm"; then it makes a difference.
		if (unknown && (nothing || f.sum === f.all))
			$("filter-says").textContent = `unknown field “${unknown}”`;
		else if (nothing)
			$("filter-says").textContent = "nothing matches";
		else
			$("filter-says").textContent = f.all ? `${bytes(f.sum)} · ${percent(f.sum, f.all)}` : "";
	}

	// Adds terms to the filter box, or removes them if they are its whole content.
	Page.find = terms => {
		const text = terms.join(" ");
		$("filter").value = $("filter").value.trim() === text ? "" : text;
		Page.set({ filter: $("filter").value.trim() });
	};

	// ---- views

	function tabs() {
		const there = ORDER.filter(id => !Page.views[id].here || Page.views[id].here());
		if (!there.includes(state.tab))
			Page.set({ tab: there[0] });
		$("tabs").replaceChildren(...there.map(id => el("button", {
			type: "button", role: "tab", id: "tab-" + id, textContent: Page.views[id].title, "aria-selected": String(state.tab === id), "aria-controls": "view",
			tabIndex: state.tab === id ? 0 : -1, title: `${Page.views[id].title} (${ORDER.indexOf(id) + 1})`, onclick: () => Page.set({ tab: id }),
		})));
		Page.tabsHere = there;
	}

	let opened = null;
	function view() {
		if (opened === state.tab)
			return;
		if (opened)
			Page.views[opened].close();
		opened = state.tab;
		$("view").setAttribute("aria-labelledby", "tab-" + opened);
		Page.views[opened].open($("view"));
	}

	$("tabs").addEventListener("keydown", e => {
		const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key], n = Page.tabsHere.length;
		if (!by)
			return;
		e.preventDefault();
		e.stopPropagation();
		Page.set({ tab: Page.tabsHere[(Page.tabsHere.indexOf(state.tab) + by + n) % n] });
		Page.settle();
		$("tab-" + state.tab).focus();
	});

	// While the user brushes or zooms, slow views are redrawn only after a pause.
	let later = 0;
	function renew(changed) {
		const v = Page.views[state.tab];
		if (opened !== state.tab)
			return;
		const zoomed = changed.size === 1 && changed.has("view");
		if (zoomed && !v.zooms)
			return;
		clearTimeout(later);
		if (v.slow && (state.brushing || zoomed))
			later = setTimeout(() => v.renew(new Set()), 150);
		else
			v.renew(changed);
	}

	// ---- divider between table and view

	function split() {
		const bar = $("split"), main = $("views");
		const to = p => {
			p = Math.max(20, Math.min(80, p));
			main.style.setProperty("--left", p + "%");
			bar.setAttribute("aria-valuenow", Math.round(p));
		};
		bar.addEventListener("pointerdown", e => { bar.setPointerCapture(e.pointerId); bar.dataset.held = "1"; e.preventDefault(); });
		bar.addEventListener("pointermove", e => {
			const r = main.getBoundingClientRect();
			if (bar.dataset.held)
				to((e.clientX - r.left) / r.width * 100);
		});
		bar.addEventListener("pointerup", () => { delete bar.dataset.held; });
		bar.addEventListener("keydown", e => {
			const by = { ArrowLeft: -3, ArrowRight: 3 }[e.key];
			if (!by)
				return;
			to(Number(bar.getAttribute("aria-valuenow")) + by);
			e.preventDefault();
			e.stopPropagation();
		});
	}

	function wide() {
		const on = document.body.classList.toggle("wide");
		$("wide").setAttribute("aria-pressed", on);
	}

	// ---- keys

	// Several events may have the same time, so the event's number is used.
	const peakMoment = () => Page.device().peak_moment ?? Page.data.at(state.device, Page.device().peak_time ?? 0);
	const goPeak = () => Page.chooseMoment(peakMoment());
	Object.assign(Page, { peakMoment });
	const goEnd = () => Page.chooseMoment(Page.moments().length - 1);
	function goOom() {
		const all = Page.timeline.oomsHere();
		if (all.length)
			Page.chooseTime((all.find(o => o.time > state.time + 1e-9) ?? all[0]).time);
	}
	// Outside of whole steps, what lies between two of them: a job runs out of memory in a step that does not end.
	function chooseStep(t = state.time) {
		const steps = head.steps ?? [];
		const [, from, to] = Page.stepAt(t) ?? [0, steps.findLast(s => s[1] <= t)?.[1] ?? Page.START, steps.find(s => s[0] >= t)?.[0] ?? Page.END];
		Page.chooseWindow(Page.data.at(state.device, from), Page.data.at(state.device, to));
	}
	function byStep(dir) {
		const steps = head.steps ?? [];
		if (!steps.length)
			return;
		const ends = steps.map(s => Page.data.at(state.device, s[1]));
		const i = dir > 0 ? ends.findIndex(m => m > state.moment) : ends.findLastIndex(m => m < state.moment);
		if (i >= 0)
			Page.chooseMoment(ends[i]);
	}
	function moveEdge(which) {
		if (which === "from")
			Page.chooseWindow(state.moment, state.from === null ? Page.moments().length - 1 : state.moment);
		else
			Page.chooseWindow(state.from ?? -1, state.moment);
	}

	const KEYS = [
		["← →", "previous or next event", null],
		["Shift ← →", "previous or next step", null],
		["Alt ← →", "move the end of the window by one event", null],
		["p", "peak", goPeak],
		["e", "end", goEnd],
		["o", "next out-of-memory error", goOom],
		["s", "select the step as a window", () => chooseStep()],
		["[", "start a window here", () => moveEdge("from")],
		["]", "select from the start to here", () => moveEdge("to")],
		["+ −", "zoom the timeline", null],
		["0", "show the whole recording", Page.showAll],
		["z", "zoom to the selection", () => Page.timeline.showChoice()],
		["/", "filter", null],
		["m", "next figure of the window: allocated, kept, growth, live", () => {
			const ids = Object.keys(Page.MEASURES);
			Page.set({ measure: ids[(ids.indexOf(state.measure) + 1) % ids.length] });
		}],
		["b", "group the table by line, role, module, stack", () => {
			const all = [...$("by").options].map(o => o.value);
			Page.set({ by: all[(all.indexOf(state.by) + 1) % all.length] });
		}],
		["c", "copy the table as TSV", () => Page.table.copy()],
		["1 – 5", "flame graph, growth, lifetimes, segments, modules", null],
		["w", "wide or normal view", wide],
		["t", "light or dark", Page.toggleTheme],
		["Enter", "in a table: filter all views to this row, or back", null],
		["→ ←", "in a table: unfold or fold a group", null],
		["Esc", "leave the window, then the filter", null],
		["?", "show keys, filter fields and signs", () => $("keys").showModal()],
		["In a graph", "arrow keys move, Enter zooms in, Esc zooms out, f filters to a frame", null],
	];

	const SIGNS = [
		["Areas", "live memory, by role, phase or module (Bands)"], ["Dashed line", "memory that PyTorch has reserved"],
		["Vertical dashes", "ends of steps"], ["Strip below", "phases: forward, backward, optimizer"],
		...head.scopes ? [["Bands below", "scopes: functions and phases of the program's own"]] : [],
		["Blue line", "the selected moment"],
	];

	function typing(e) {
		return e.target.matches("input:not([type=checkbox]), select, textarea");
	}

	function onKey(e) {
		if (e.ctrlKey || e.metaKey || $("keys").open || e.defaultPrevented)
			return;
		if (e.key === "Escape") {
			if (e.target === $("filter") && $("filter").value === "")
				$("plot").focus();
			else if (state.from !== null && e.target !== $("filter"))
				Page.chooseMoment(state.moment);
			else if (state.filter)
				Page.find([]);
			return;
		}
		if (typing(e) || !state.ready)
			return;
		const dir = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
		if (dir && e.altKey)
			Page.chooseWindow(state.from ?? state.moment, Math.max((state.from ?? state.moment), state.moment + dir));
		else if (dir && e.shiftKey)
			byStep(dir);
		else if (dir)
			Page.chooseMoment(Math.max(0, state.moment + dir));
		else if (e.altKey)
			return;
		else if (e.key === "+" || e.key === "=")
			Page.timeline.zoomBy(0.5);
		else if (e.key === "-")
			Page.timeline.zoomBy(2);
		else if (e.key === "/")
			$("filter").focus();
		else if (Page.tabsHere.includes(ORDER[Number(e.key) - 1]))
			Page.set({ tab: ORDER[Number(e.key) - 1] });
		else {
			const key = KEYS.find(k => k[0] === e.key && k[2]);
			if (!key)
				return;
			key[2]();
		}
		e.preventDefault();
		follow();
	}

	// Scrolls the timeline to the moment chosen by a key.
	function follow() {
		const [a, b] = state.view, t = state.time;
		if (t < a || t > b)
			Page.show(t - (b - a) / 2, t + (b - a) / 2);
	}

	function buttons() {
		Page.pairs($("keys-list"), "kbd", KEYS);
		Page.pairs($("fields-list"), "code", [...Words.FIELDS, ["stack:loss", "any frame of the stack"]]);
		Page.pairs($("signs-list"), "b", SIGNS);
		$("help").addEventListener("click", () => $("keys").showModal());
		$("theme").addEventListener("click", Page.toggleTheme);
		$("wide").addEventListener("click", wide);
		const go = fn => () => { if (state.ready) { fn(); follow(); } };
		$("go-peak").addEventListener("click", go(goPeak));
		$("go-end").addEventListener("click", go(goEnd));
		$("go-oom").addEventListener("click", go(goOom));
		$("go-step").addEventListener("click", go(() => chooseStep()));
		$("clear-window").addEventListener("click", go(() => Page.chooseMoment(state.moment)));
		$("go-step").hidden = !(head.steps ?? []).length;
		$("find").addEventListener("submit", e => e.preventDefault());
		let wait = 0;
		$("filter").addEventListener("input", () => {
			clearTimeout(wait);
			wait = setTimeout(() => Page.set({ filter: $("filter").value.trim() }), 60);
		});
		addEventListener("keydown", onKey);
	}

	// ---- the selection is kept in the address, for reloading and bookmarks

	let addressWait = 0;
	function keepAddress() {
		clearTimeout(addressWait);
		addressWait = setTimeout(() => {
			const p = new URLSearchParams();
			p.set("t", state.time.toFixed(9));
			if (state.from !== null)
				p.set("from", Page.timeOf(state.from).toFixed(9));
			for (const k of ["by", "tab", "filter", "measure"])
				if (state[k])
					p.set(k, state[k]);
			if (head.devices.length > 1)
				p.set("device", Page.device().name);
			try {
				history.replaceState(null, "", "#" + p);
			} catch {
				// some browsers do not allow changing the address of a file
			}
		}, 300);
	}

	function fromAddress() {
		const p = new URLSearchParams(location.hash.slice(1)), patch = {};
		const d = head.devices.findIndex(x => x.name === p.get("device")), oom = head.at_given ? null : Page.findings.oom();
		if (d >= 0)
			patch.device = d;
		else if (oom)
			patch.device = oom.device;
		if ([...$("by").options].some(o => o.value === p.get("by")))
			patch.by = p.get("by");
		if (ORDER.includes(p.get("tab")))
			patch.tab = p.get("tab");
		if (Page.MEASURES[p.get("measure")])
			patch.measure = p.get("measure");
		patch.filter = $("filter").value = p.get("filter") ?? "";
		Object.assign(state, patch);
		const number = k => p.has(k) && isFinite(p.get(k)) ? Number(p.get(k)) : null;
		return { t: number("t") ?? (oom?.device === state.device ? oom.time : null), from: number("from") };
	}

	// The initial range: the phases, because most of a recording can be time before the first step.
	function firstView() {
		const phases = (head.phases ?? []).filter(p => p[2] !== "other"), s = Page.device().series;
		const i = s ? s.allocated_max.findIndex(v => v > 0) : -1, peak = Page.device().peak_time ?? 0;
		let a = phases.length ? phases[0][0] : i > 0 ? s.t[i] : Page.START, b = phases.length ? phases[phases.length - 1][1] : Page.END;
		a = Math.min(a, peak);
		b = Math.max(b, peak);
		if (b - a < 0.6 * (Page.END - Page.START) && b > a)
			Page.show(a - (b - a) * 0.04, b + (b - a) * 0.04);
	}

	// ---- the events

	async function open(place) {
		try {
			performance.mark("open-begin");
			Page.data = await Data.open(head, $("data").textContent);
			performance.measure("open", "open-begin");
			$("data").remove(); // frees the memory of its text
		} catch (err) {
			$("sum").textContent = `This page's events cannot be read: ${err.message}`;
			$("sum").classList.add("warn");
			document.body.dataset.state = "failed";
			return;
		}
		Page.opened();
		state.ready = true;
		const first = place.t !== null ? Page.data.at(state.device, place.t) : Page.device().at_moment ?? peakMoment();
		Page.set({ moment: first });
		state.time = Page.timeOf(state.moment);
		if (place.from !== null)
			Page.chooseWindow(Page.data.at(state.device, place.from), state.moment);
		state.ready = false;
		Page.set({ ready: true });
		tabs();
		Page.settle();
		performance.mark("ready");
		document.body.dataset.state = "ready";
	}

	function start() {
		const place = fromAddress();
		top();
		devices();
		buttons();
		tabs();
		measures();
		split();
		firstView();
		const oom = () => { $("go-oom").hidden = !Page.timeline.oomsHere().length; };
		oom();
		Page.watch(["device", "ready"], () => { top(); oom(); tabs(); $("device").value = state.device; });
		Page.watch(["tab"], () => { tabs(); view(); });
		Page.watch(["from", "measure"], measures);
		Page.watch(["moment", "from", "measure", "filter", "device", "ready", "view", "theme"], renew);
		Page.watch(["moment", "from", "measure", "filter", "device", "ready"], () => { say(); filterSays(); keepAddress(); });
		Page.watch(["by", "tab"], keepAddress);
		Page.timeline.start();
		Page.table.start();
		Page.findings.show();
		view();
		say();
		Page.settle();
		document.body.dataset.state = "head";
		performance.mark("first-picture");
		// The events follow this script in the file, so they are loaded later. Draw first, then load. A
		// background page gets no animation frames, so a timer also starts loading.
		let begun = false;
		const begin = () => {
			if (!begun)
				open(place);
			begun = true;
		};
		const later_ = () => {
			requestAnimationFrame(() => setTimeout(begin, 0));
			setTimeout(begin, 300);
		};
		if (document.readyState === "loading")
			document.addEventListener("DOMContentLoaded", later_);
		else
			later_();
	}

	start();
})();
