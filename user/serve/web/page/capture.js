// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Starts captures of the selected process or target. Shows running captures with progress and a stop button.
"use strict";
(() => {
	const { $, el, state, model } = Page;
	const { count, seconds } = Words;
	const UNDER_WAY = ["starting", "capturing", "finishing"];
	const FREE_SECONDS = 10; // seconds; the server's default length of a capture
	const done = new Set();

	const underWay = t => UNDER_WAY.includes(t.state);

	// Progress, 0 to 1, toward the limit that will be reached first.
	function part(t) {
		const of = [t.max_events ? (t.events ?? 0) / t.max_events : 0];
		if (t.duration_s)
			of.push((t.seconds ?? 0) / t.duration_s);
		else if (t.steps_wanted)
			of.push((t.steps ?? 0) / t.steps_wanted);
		else if (!model.targets.some(x => x.kind === "command" && x.name === t.model_name))
			of.push((t.seconds ?? 0) / FREE_SECONDS);
		return t.state === "finishing" ? 1 : Math.min(1, Math.max(...of));
	}

	function words(t) {
		if (t.state === "starting")
			return t.uploaded ? "reading…" : "starting…";
		const far = t.steps_wanted ? `${count(t.steps ?? 0)} of ${count(t.steps_wanted)} steps` : t.duration_s ? `${(t.seconds ?? 0).toFixed(1)} of ${seconds(t.duration_s)}` : seconds(t.seconds ?? 0);
		return `${t.state === "finishing" ? "finishing · " : ""}${far} · ${count(t.events ?? 0)} events · ${count(t.lost ?? 0)} lost`;
	}

	async function stop(id) {
		try {
			await Page.net.api(`trace/${encodeURIComponent(id)}/stop`, { method: "POST" });
		} catch (err) {
			Page.say(`Cannot stop the capture: ${err.message}`);
		}
	}

	// ---- running captures

	const shown = new Map(); // trace_id -> its row
	function row(t) {
		const bar = el("i"), text = el("span", { className: "says" });
		const stopIt = el("button", { type: "button", textContent: "Stop", onclick: () => { stopIt.disabled = true; stop(t.trace_id); } });
		return { e: el("li", {}, el("span", { className: "progress", role: "progressbar", "aria-label": "Capture", "aria-valuemin": 0, "aria-valuemax": 100 }, bar), text, stopIt), bar, text, stopIt };
	}

	function running() {
		const p = Page.chosenProcess(), target = Page.chosenTarget();
		const mine = [...model.traces.values()].filter(t => underWay(t) && (p ? t.pid === p.pid || (t.pid === null && t.model_name && t.model_name === p.target) : target && t.model_name === target.name));
		for (const [id, r] of shown)
			if (!mine.some(t => t.trace_id === id)) {
				r.e.remove();
				shown.delete(id);
			}
		for (const t of mine) {
			if (!shown.has(t.trace_id)) {
				shown.set(t.trace_id, row(t));
				$("running").append(shown.get(t.trace_id).e);
			}
			const r = shown.get(t.trace_id), done_ = part(t);
			r.bar.style.width = done_ * 100 + "%";
			r.bar.parentElement.setAttribute("aria-valuenow", Math.round(done_ * 100));
			r.text.textContent = words(t);
			r.stopIt.hidden = t.state === "finishing";
		}
		$("running").hidden = !mine.length;
		ended();
	}

	// Reports captures started on this page when they end.
	function ended() {
		for (const id of done) {
			const t = model.traces.get(id);
			if (t && underWay(t))
				continue;
			done.delete(id);
			if (t?.state === "done")
				Page.say(`Captured ${Page.traceName(t)}: ${count(t.events ?? 0)} events, ${count(t.lost ?? 0)} lost.`, ["Open", Page.traceAddress(id)]);
			else if (t?.state === "failed")
				$("capture-says").textContent = t.error ?? "The capture failed.";
		}
	}

	// ---- the form

	const NAMES = { duration_s: "length", steps: "length", max_events: "events", host: "with-host", input_shape: "shape", batch_size: "batch" };

	function wanted() {
		const p = Page.chosenProcess(), target = Page.chosenTarget(), body = { wait: false, max_events: Number($("events").value) };
		if (p)
			body.pid = p.pid;
		else
			body.model_name = target.name;
		if ($("unit").value && $("length").value !== "")
			body[$("unit").value] = Number($("length").value);
		if ($("with-host").checked)
			body.host = true;
		if (target) {
			const shape = ($("shape").value.match(/\d+/g) ?? []).map(Number);
			if (shape.length)
				body.input_shape = shape;
			if ($("batch").value !== "")
				body.batch_size = Number($("batch").value);
		}
		return body;
	}

	async function go(e) {
		e.preventDefault();
		for (const id of Object.values(NAMES))
			$(id).removeAttribute("aria-invalid");
		$("capture-says").textContent = "";
		$("go").disabled = true;
		try {
			const t = await Page.net.api("trace/memory", { method: "POST", body: wanted() });
			mine(t);
			ended();
		} catch (err) {
			$("capture-says").textContent = err.message;
			const field = $(NAMES[err.field]);
			field?.setAttribute("aria-invalid", "true");
			field?.focus();
		} finally {
			usable();
		}
	}

	function usable() {
		const p = Page.chosenProcess(), t = Page.chosenTarget(), can = model.hello?.can_trace !== false;
		const nobody = p ? p.gone : t?.kind !== "command";
		$("go").disabled = nobody || !can;
		$("go").textContent = t ? "Run and capture" : "Capture";
		$("capture").classList.toggle("command", Boolean(t));
		$("capture").hidden = !p && !t;
		if (!can)
			$("capture-says").textContent = `This server cannot capture: ${model.hello?.why ?? "no reason is known"}`;
	}

	function unit() {
		const command = Page.chosenTarget()?.kind === "command";
		$("to-its-end").hidden = $("to-its-end").disabled = !command;
		if (!command && !$("unit").value)
			$("unit").value = "duration_s";
		$("length").hidden = !$("unit").value;
		$("length-label").textContent = $("unit").value ? "Capture for" : "Capture";
	}

	function limits() {
		const most = model.hello?.limits?.max_events;
		if (most) {
			$("events").max = most;
			if (Number($("events").value) > most)
				$("events").value = most;
		}
		if (model.hello?.limits?.max_duration_s && $("unit").value === "duration_s")
			$("length").max = model.hello.limits.max_duration_s;
		else
			$("length").removeAttribute("max");
	}

	function start() {
		$("capture").addEventListener("submit", go);
		$("unit").addEventListener("change", () => { unit(); limits(); });
		Page.watch(["chosen"], () => {
			$("capture-says").textContent = "";
			if (Page.chosenTarget()?.kind === "command")
				$("unit").value = "";
			unit();
		});
		Page.watch(["chosen", "processes", "targets", "hello"], usable);
		Page.watch(["hello"], limits);
		Page.watch(["traces", "chosen", "targets"], running);
		unit();
		usable();
	}

	// Takes over a capture that another part of the page has started.
	function mine(t) {
		done.add(t.trace_id);
		if (!model.traces.has(t.trace_id))
			Page.takeTrace(t);
	}

	Page.capture = { start, underWay, part, words, stop, mine };
})();
