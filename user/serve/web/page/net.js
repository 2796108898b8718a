// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Communication with the server: API calls and the event stream.
"use strict";
(() => {
	const { $, state, model } = Page;

	class ApiError extends Error {
		constructor(status, detail, field) {
			super(detail);
			this.status = status;
			this.field = field;
		}
	}

	async function reason(r) {
		let detail = "", field;
		try {
			const doc = await r.json();
			detail = typeof doc.detail === "string" ? doc.detail : "";
			field = doc.field;
		} catch {
			// no JSON: use the status text
		}
		detail ||= `The server answers ${r.status} ${r.statusText}`;
		const wait = r.headers.get("Retry-After");
		if (r.status === 429 && wait)
			detail += ` (try again in ${wait} s)`;
		return new ApiError(r.status, detail, field);
	}

	function refused(status) {
		if (status === 401)
			login();
	}

	// Returns JSON, or throws an ApiError whose message is shown to the user.
	async function api(path, { method = "GET", body, signal } = {}) {
		let r;
		try {
			r = await fetch("api/" + path, {
				method, signal, credentials: "same-origin", cache: "no-store",
				headers: body === undefined ? {} : { "Content-Type": "application/json" },
				body: body === undefined ? undefined : JSON.stringify(body),
			});
		} catch (err) {
			if (err.name === "AbortError")
				throw err;
			throw new ApiError(0, "The server does not answer.");
		}
		refused(r.status);
		if (!r.ok)
			throw await reason(r);
		return r.status === 204 ? null : r.json();
	}

	// ---- token

	function login() {
		Page.set({ link: "token" });
		if (!$("login").open)
			$("login").showModal();
	}

	async function enter(e) {
		e.preventDefault();
		$("login-says").textContent = "";
		try {
			const r = await fetch("api/session", { method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: $("token").value }) });
			if (!r.ok)
				throw await reason(r);
		} catch (err) {
			$("login-says").textContent = err instanceof ApiError ? err.message : "The server does not answer.";
			return;
		}
		$("token").value = "";
		$("login").close();
		open();
		Page.touch("route");
	}

	// ---- event stream. Browsers reconnect after a lost connection, but not after an HTTP error.

	let source = null, wait = 0, tries = 0;
	const EVENTS = ["hello", "targets", "process", "sample", "trace", "gone"];

	function open() {
		clearTimeout(wait);
		source?.close();
		source = new EventSource("api/stream");
		for (const name of EVENTS)
			source.addEventListener(name, e => {
				tries = 0;
				Page.set({ link: "open" });
				Page.take(name, JSON.parse(e.data));
			});
		source.addEventListener("open", () => Page.set({ link: "open" }));
		source.addEventListener("error", failed);
	}

	async function failed() {
		const closed = source.readyState === EventSource.CLOSED;
		Page.set({ link: "lost" });
		if (!closed)
			return;
		source.close();
		wait = setTimeout(open, Math.min(15000, 1000 * 2 ** tries++));
		try {
			await api("targets");
		} catch (err) {
			if (err.status === 401)
				clearTimeout(wait);
		}
	}

	async function history_(pid) {
		try {
			const doc = await api(`targets/${pid}/history`);
			Page.takeHistory(pid, doc.samples);
		} catch {
			// the chart begins with new samples
		}
	}

	// ---- the top of the page

	function trust() {
		const h = model.hello, items = [];
		if (state.link === "open")
			items.push(["connected", "good", "The page is up to date."]);
		else
			items.push([...({ lost: ["not connected, trying again", "bad"], token: ["token required", "bad"] }[state.link] ?? ["connecting", ""]), "The page may be out of date."]);
		if (h && h.can_trace === false && !model.targets.length)
			items.push(["recordings only", "", h.why]);
		else if (h && h.can_trace === false)
			items.push([h.why ? `cannot capture: ${h.why}` : "cannot capture", "bad"]);
		$("trust").replaceChildren(...items.map(([text, cls, title]) => Page.el("li", { className: cls, textContent: text, title: title ?? text })));
		const n = model.processes.size, t = model.traces.size;
		$("facts").textContent = h ? [`${h.version ?? ""}`, `${n} ${n === 1 ? "process" : "processes"}`, `${t} ${t === 1 ? "capture" : "captures"}`, location.host].filter(Boolean).join("  ·  ") : "";
		document.body.classList.toggle("lost", state.link === "lost" || state.link === "token");
	}

	function start() {
		$("login-form").addEventListener("submit", enter);
		$("login").addEventListener("cancel", e => e.preventDefault());
		Page.watch(["link", "hello", "targets", "processes", "traces"], trust);
		trust();
		open();
		addEventListener("pagehide", () => source.close());
		addEventListener("pageshow", e => e.persisted && open());
	}

	Page.net = { api, ApiError, refused, start, history: history_ };
})();
