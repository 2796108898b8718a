// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Sends recordings and memory snapshots that are dropped on the page or picked, and opens them as captures.
"use strict";
(() => {
	const { $ } = Page;
	const { bytes, percent } = Words;
	let queue = Promise.resolve();

	// Resolves to the result, or rejects with an ApiError. fetch() has no progress of what is sent.
	function send(file, progress) {
		return new Promise((done, fail) => {
			const x = new XMLHttpRequest();
			x.open("POST", "api/trace/upload?name=" + encodeURIComponent(file.name.replace(/[\u0000-\u001f\u007f]/g, "").slice(-200)));
			x.setRequestHeader("Content-Type", "application/octet-stream");
			x.responseType = "json";
			x.upload.addEventListener("progress", e => progress(e.loaded));
			x.addEventListener("load", () => {
				if (x.status === 200 && x.response)
					return done(x.response);
				Page.net.refused(x.status);
				fail(new Page.net.ApiError(x.status, x.response?.detail ?? `The server answers ${x.status} ${x.statusText}`));
			});
			x.addEventListener("error", () => fail(new Page.net.ApiError(0, "The server has ended the transfer.")));
			x.send(file);
		});
	}

	async function one(file, last) {
		const says = $("upload-says");
		says.classList.remove("warn");
		const show = n => { says.textContent = n < file.size ? `Sending ${file.name}: ${percent(n, file.size)} of ${bytes(file.size)}` : `Reading ${file.name}…`; };
		show(0);
		try {
			const { trace_id } = await send(file, show);
			says.textContent = "";
			if (last)
				Page.go(Page.traceAddress(trace_id));
		} catch (err) {
			says.textContent = says.title = `${file.name}: ${err.message}`;
			says.classList.add("warn");
		}
	}

	// One after the other. A single file is opened.
	function take(files) {
		const all = [...files];
		for (const file of all)
			queue = queue.then(() => one(file, all.length === 1));
	}

	const ofFiles = e => e.dataTransfer?.types.includes("Files");

	function start() {
		$("pick").addEventListener("click", () => $("file").click());
		$("file").addEventListener("change", () => {
			take($("file").files);
			$("file").value = "";
		});
		addEventListener("dragover", e => {
			if (!ofFiles(e))
				return;
			e.preventDefault();
			document.body.classList.add("drop");
		});
		addEventListener("dragleave", e => e.relatedTarget || document.body.classList.remove("drop"));
		addEventListener("drop", e => {
			document.body.classList.remove("drop");
			if (!ofFiles(e))
				return;
			e.preventDefault();
			take(e.dataTransfer.files);
		});
	}

	Page.upload = { start };
})();
