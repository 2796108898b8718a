// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// A client of the HTTP API as somebody writes one for a web page: api_client.mjs URL MODEL. Prints what it found, as JSON.
const [base, model] = process.argv.slice(2);

async function call(method, path, body) {
	const answer = await fetch(base + path, {
		method,
		headers: body ? { 'content-type': 'application/json' } : {},
		body: body && JSON.stringify(body),
	});
	if (!answer.ok)
		throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
	return answer;
}

const ask = async (method, path, body) => (await call(method, path, body)).json();

const trace = await ask('POST', '/api/trace/memory', { model_name: model, steps: 3, max_events: 10000 });
const { active_traces: active, count } = await ask('GET', '/api/trace/list');
if (!active.includes(trace.trace_id) || active.length !== count)
	throw new Error(`${trace.trace_id} is not among ${active}`);
const exported = await ask('POST', '/api/trace/export', { trace_id: trace.trace_id, format: 'speedscope' });
const file = await call('GET', exported.download_url);
const text = await file.text();
if (Buffer.byteLength(text) !== exported.file_size_bytes)
	throw new Error(`${Buffer.byteLength(text)} bytes came, not ${exported.file_size_bytes}`);
const profiles = JSON.parse(text).profiles.length;
const gone = await ask('DELETE', `/api/trace/${trace.trace_id}`);
const after = await fetch(`${base}/api/trace/${trace.trace_id}`);
console.log(JSON.stringify({
	peak: trace.peak_allocated_mb, layers: trace.total_layers, profiles, type: file.headers.get('content-type'),
	message: gone.message, remaining: gone.remaining_traces, after: after.status, detail: (await after.json()).detail,
}));
