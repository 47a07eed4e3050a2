// The page of a process of Braid, and of its job where it knows its peers. Reads /job.json, /history.json,
// /plan.json and /trace.json of where it was loaded from, and nothing else.
'use strict';

const el = (id) => document.getElementById(id);
const CAUSES = ['busy', 'input', 'pull', 'push', 'comm', 'compute', 'space', 'idle'];
const SAYS = { busy: 'busy', input: 'waits for input', pull: 'pull', push: 'push', comm: 'peers', compute: 'another stream', space: 'room', idle: 'idle' };
const number = Draw.number;
const percent = (v) => Math.round(100 * (v || 0)) + ' %';
const bytes = (v) => v >= 2 ** 30 ? (v / 2 ** 30).toFixed(1) + ' GiB' : v >= 2 ** 20 ? (v / 2 ** 20).toFixed(1) + ' MiB' : (v / 1024).toFixed(0) + ' KiB';
const time = (s) => s >= 120 ? (s / 60).toFixed(0) + ' min' : s >= 1 ? s.toFixed(1) + ' s' : s >= 0.01 ? (1e3 * s).toFixed(0) + ' ms' : (1e3 * s).toFixed(2) + ' ms';
const order = (task) => { const m = /^(.*?)(\d+)?$/.exec(task); return [m[1], Number(m[2] || 0)]; };
let plan = null, job = null;

function node(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

async function get(target) {
  const headers = {}, proof = Proof.header(el('token').value, target);
  if (proof) headers.Authorization = proof;
  const answer = await fetch(target, { headers, cache: 'no-store' });
  if (answer.status === 401) {
    el('token').hidden = false;
    throw new Error('needs the job\'s token: ' + (await answer.text()).trim());
  }
  if (answer.status === 202) return null;
  if (!answer.ok) throw new Error((await answer.text()).trim() || 'answers ' + answer.status);
  return answer.json();
}

function waitOf(status, causes) {
  let most = 0;
  for (const s of status.streams || []) {
    if (s.cause !== 'compute') continue;
    most = Math.max(most, causes.reduce((sum, c) => sum + ((s.wait || {})[c] || 0), 0));
  }
  return most;
}

function bar(stream) {
  const host = node('div', 'bar');
  const shares = { busy: stream.busy };
  for (const [cause, share] of Object.entries(stream.wait || {})) {
    const known = CAUSES.includes(cause) ? cause : 'idle';
    shares[known] = (shares[known] || 0) + share;
  }
  let words = stream.name;
  for (const cause of CAUSES) {
    if (!shares[cause]) continue;
    const part = node('div', 'c-' + cause);
    part.style.width = (100 * shares[cause]).toFixed(1) + '%';
    host.append(part);
    words += '\n' + SAYS[cause] + ' ' + percent(shares[cause]);
  }
  if (stream.node_seconds) words += '\nmean node ' + (1e6 * stream.node_seconds).toFixed(1) + ' us';
  host.onmousemove = (e) => Draw.showTip(words, e.clientX, e.clientY);
  host.onmouseleave = Draw.hideTip;
  return host;
}

function workerCard(peer, many) {
  const card = node('div', 'worker');
  const head = node('div', 'head'), link = node('a', '', peer.task || peer.address);
  link.href = 'http://' + peer.address + '/';
  const s = peer.status;
  head.append(link);
  card.append(head);
  if (peer.error || !s) {
    card.classList.add('dead');
    card.append(node('div', 'why', 'does not answer: ' + (peer.error || '') + (peer.silent_seconds >= 1 ? ', for ' + time(peer.silent_seconds) : '')));
    return card;
  }
  head.append(node('span', '', s.trains ? time(s.step_seconds || 0) + ' a step' : s.state));
  const facts = [];
  if (s.trains) facts.push('step ' + s.step, number(s.examples_per_second) + ' examples/s');
  if (s.loss !== undefined) facts.push('loss ' + number(s.loss));
  facts.push(s.process.cores_used.toFixed(1) + ' of ' + s.process.cores + ' cores', bytes(s.process.resident_bytes));
  if (s.network.sent_per_second + s.network.received_per_second > 0) facts.push(bytes(s.network.sent_per_second + s.network.received_per_second) + '/s');
  if (s.host) facts.push(s.host);
  const line = node('div', 'facts', facts.join(' · '));
  line.title = facts.join('\n');
  card.append(line);
  const shown = many ? s.streams.filter((x) => x.cause !== 'stage') : s.streams;
  for (const stream of shown) {
    const row = node('div', 'stream');
    row.append(node('span', 'name', stream.name), bar(stream), node('span', 'share', percent(stream.busy)));
    card.append(row);
  }
  return card;
}

function showWorkers() {
  const text = el('filter').value, by = el('sort').value;
  const key = { step: (s) => s.step_seconds || 0, busy: (s) => s.compute_busy || 0, input: (s) => waitOf(s, ['input']), peers: (s) => waitOf(s, ['pull', 'push', 'comm']) }[by];
  const peers = job.peers.filter((p) => !(p.status && p.status.server) && (p.task || p.address).includes(text));
  peers.sort((a, b) => {
    if (!a.error !== !b.error) return a.error ? -1 : 1;
    if (key && a.status && b.status && key(a.status) !== key(b.status)) return key(b.status) - key(a.status);
    const x = order(a.task), y = order(b.task);
    return x[0] < y[0] ? -1 : x[0] > y[0] ? 1 : x[1] - y[1];
  });
  const many = peers.length > 8;
  el('workers').className = many ? 'many' : '';
  el('workers').replaceChildren(...peers.map((p) => workerCard(p, many)));
}

function table(id, titles, rows) {
  const head = node('tr');
  for (const title of titles) head.append(node('th', '', title));
  el(id).replaceChildren(head, ...rows.map((cells) => {
    const row = node('tr');
    for (const cell of cells) row.append(node('td', '', cell));
    return row;
  }));
}

function showJob() {
  const answering = job.peers.filter((p) => !p.error && p.status);
  const leader = (answering.find((p) => p.status.leads && p.status.trains) || answering.find((p) => p.status.trains) || answering[0] || {}).status;
  el('job').textContent = job.job || 'braid';
  document.title = (job.job || 'braid') + (leader && leader.target_steps ? ' ' + percent(leader.step / leader.target_steps) : '');
  el('answers').textContent = answering.length + ' of ' + job.peers.length + ' processes answer';
  el('state').textContent = leader ? leader.state : 'nobody answers';
  el('state').className = 'pill' + (!leader || answering.length < job.peers.length ? ' bad' : leader.state === 'training' || leader.state === 'serving' ? '' : ' calm');
  const numbers = [];
  if (leader && leader.trains) {
    const share = leader.target_steps ? leader.step / leader.target_steps : 0;
    el('progress-bar').style.width = 100 * share + '%';
    const left = leader.steps_per_second > 0 && leader.target_steps ? (leader.target_steps - leader.step) / leader.steps_per_second : null;
    el('progress-text').textContent = 'step ' + leader.step + (leader.target_steps ? ' of ' + leader.target_steps + ' (' + percent(share) + ')' : '') + (left !== null ? ', ' + time(left) + ' left' : '');
    const rate = answering.reduce((sum, p) => sum + (p.status.examples_per_second || 0), 0);
    numbers.push(['loss', number(leader.loss)], ['examples/s', number(rate)], ['step', time(leader.step_seconds || 0)], ['learning rate', number(leader.learning_rate)]);
    for (const [name, value] of Object.entries(leader.metrics || {})) numbers.push([name, number(value)]);
    numbers.push(['compute busy', percent(leader.compute_busy)], ['overlap', (leader.overlap || 1).toFixed(2)], ['input wait', percent(waitOf(leader, ['input']))]);
    if (leader.checkpoints && leader.checkpoints.saved) numbers.push(['checkpoint', 'step ' + leader.checkpoints.last_step + ', ' + time(leader.checkpoints.age_seconds) + ' ago, took ' + time(leader.checkpoints.duration_seconds)]);
  }
  el('numbers').replaceChildren(...numbers.map(([name, value]) => {
    const pair = node('div');
    pair.append(node('span', '', name), node('b', '', value));
    return pair;
  }));
  el('warnings-section').hidden = job.warnings.length === 0;
  el('warnings').replaceChildren(...job.warnings.map((w) => {
    const item = node('li');
    item.append(node('b', '', (w.task ? w.task + ': ' : '')), w.text, node('i', '', w.advice));
    return item;
  }));
  showWorkers();
  const servers = answering.filter((p) => p.status.server);
  el('servers-section').hidden = servers.length === 0;
  table('servers', ['server', 'rows made', 'pushes/s', 'pulls/s', 'rows/s', 'bytes/s', 'stale', 'parked', 'cores', 'memory'], servers.map((p) => {
    const v = p.status.server;
    return [p.task, number(v.rows_made), number(v.pushes_per_second), number(v.pulls_per_second), number(v.rows_per_second), bytes(v.bytes_per_second), percent(v.stale_share), v.parked_pulls, p.status.process.cores_used.toFixed(2), bytes(p.status.process.resident_bytes)];
  }));
  const gpus = answering.flatMap((p) => (p.status.gpus || []).map((gpu) => [p.task, gpu]));
  el('gpus-section').hidden = gpus.length === 0;
  table('gpus', ['worker', 'GPU', 'used', 'memory', 'temperature', 'power', 'streams busy', 'overlap', 'batches copied', 'processes'], gpus.map(([task, g]) => [task, g.name, g.utilization === undefined ? '–' : percent(g.utilization), g.memory_total_bytes ? bytes(g.memory_used_bytes) + ' of ' + bytes(g.memory_total_bytes) : bytes(g.memory_held_bytes), g.temperature_celsius === undefined ? '–' : g.temperature_celsius.toFixed(0) + ' °C', g.power_watts === undefined ? '–' : g.power_watts.toFixed(0) + (g.power_limit_watts ? ' of ' + g.power_limit_watts.toFixed(0) : '') + ' W', g.sampled_seconds ? percent(g.busy) : '–', g.sampled_seconds ? g.overlap.toFixed(2) : '–', g.input_copy_seconds ? bytes(g.input_copy_bytes / g.input_copy_seconds) + '/s, ' + percent(g.input_copy_hidden_seconds / g.input_copy_seconds) + ' hidden' : '–', (g.processes || []).map((x) => x.pid + (x.memory_bytes ? ' (' + bytes(x.memory_bytes) + ')' : '')).join(', ')]));
}

function showCurves(history) {
  const host = el('curves'), by = history.step;
  const curves = [];
  if (by.length) {
    curves.push(['loss', by.map((s, i) => [s, history.loss[i]]), Draw.css('--accent')]);
    curves.push(['examples/s of this process', by.map((s, i) => [s, history.examples_per_second[i]]), Draw.css('--busy')]);
    curves.push(['compute busy', by.map((s, i) => [s, history.busy[i]]), Draw.css('--compute')]);
    curves.push(['input wait', by.map((s, i) => [s, history.input[i]]), Draw.css('--input')]);
  }
  for (const [name, points] of Object.entries(history.metrics)) if (points.length) curves.push([name, points, Draw.css('--pull')]);
  while (host.children.length > curves.length) host.lastChild.remove();
  while (host.children.length < curves.length) host.append(node('div', 'curve'));
  if (!curves.length) { host.append(node('div', 'help', 'this process trains nothing; curves are on the pages of workers')); return; }
  curves.forEach(([name, points, colour], i) => { if (!host.children[i].matches(':hover')) Draw.curve(host.children[i], name, points, colour, 'step'); });
}

// ---- one step ----

function colourOf(name) {
  let hash = 7;
  for (const c of name.replace(/[^A-Za-z]/g, '').slice(0, 24)) hash = (hash * 31 + c.charCodeAt(0)) % 360;
  return `hsl(${hash} 48% 42%)`;
}

function showStep(trace) {
  const names = new Map(), slices = [], flows = new Map();
  for (const e of trace.traceEvents) {
    if (e.ph === 'M' && e.name === 'thread_name') names.set(e.tid, e.args.name);
    if (e.ph === 'X') slices.push(e);
    if (e.ph === 's' || e.ph === 'f') flows.set(e.id, Object.assign(flows.get(e.id) || {}, { [e.ph]: e }));
  }
  const steps = [...new Set(slices.filter((s) => s.cat !== 'wait').map((s) => s.args.step))].sort((a, b) => a - b);
  const step = steps[Math.floor(steps.length / 2)];
  const stages = (tid) => /^stage/.test(names.get(tid) || '');
  const mine = slices.filter((s) => s.args.step === step && !stages(s.tid));
  if (!mine.length) throw new Error('no slices: is it training?');
  const begin = Math.min(...mine.map((s) => s.ts)), end = Math.max(...mine.map((s) => s.ts + s.dur));
  const near = slices.filter((s) => s.ts < end && s.ts + s.dur > begin);
  const tids = [...names.keys()].filter((t) => near.some((s) => s.tid === t));
  const ops = new Map((plan ? plan.ops : []).map((o) => [o.name, o.op]));
  const lanes = tids.map((t) => names.get(t)), laneOf = new Map(tids.map((t, i) => [t, i]));
  const boxes = near.map((s, i) => {
    const waits = s.cat === 'wait', target = s.name.replace(/^wait /, '');
    let words = (waits ? 'waits for ' + target : s.name) + '\n';
    if (ops.has(target)) words += 'op ' + ops.get(target) + '\n';
    words += 'stream ' + names.get(s.tid) + ', step ' + s.args.step + '\n' + s.dur.toFixed(1) + ' us from ' + (s.ts - begin).toFixed(1) + ' us';
    if (s.args.nodes) words += '\nnodes: ' + s.args.nodes;
    return { id: i, lane: laneOf.get(s.tid), begin: s.ts, end: s.ts + s.dur, label: waits ? '⏳ ' + target.split('/').pop() : target.split('/').slice(-2).join('/'), tip: words, faint: waits || s.args.step !== step, colour: waits ? Draw.css('--idle') : s.args.step === step ? colourOf(ops.get(s.name) || s.name) : Draw.css('--space'), slice: s };
  });
  const at = (flow) => {
    if (!flow || !laneOf.has(flow.tid)) return null;
    const box = boxes.find((b) => b.slice.tid === flow.tid && b.begin <= flow.ts && b.end >= flow.ts);
    return box ? { lane: laneOf.get(flow.tid), at: flow.ts, id: box.id } : null;
  };
  const arrows = [];
  for (const f of flows.values()) {
    const from = at(f.s), to = at(f.f);
    if (from && to && from.lane !== to.lane) arrows.push({ from, to });
  }
  for (const a of arrows) {
    const source = boxes[a.from.id];
    boxes[a.to.id].tip += '\nsignalled by ' + source.slice.name + ' on ' + lanes[a.from.lane];
  }
  new Draw.Lanes(el('timeline'), lanes, boxes, arrows);
  el('timeline-help').hidden = false;
  el('record-text').textContent = `step ${step}: ${((end - begin) / 1000).toFixed(2)} ms, ${mine.filter((s) => s.cat !== 'wait').length} nodes`;
}

async function record() {
  el('record').disabled = true;
  try {
    el('record-text').textContent = 'recording…';
    if (!plan) plan = await get('/plan.json').catch(() => null);
    const window = await get('/trace/start?steps=5');
    for (let tries = 0; ; ++tries) {
      const trace = await get('/trace.json?window=' + window.window);
      if (trace) { showStep(trace); break; }
      if (tries > 100) throw new Error('no step ended');
      await new Promise((done) => setTimeout(done, 200));
    }
  } catch (error) { el('record-text').textContent = error.message; }
  el('record').disabled = false;
}

// ---- the plan ----

function showPlan() {
  const end = new Array(plan.ops.length).fill(-1), boxes = [], arrows = [];
  const at = plan.streams.map(() => 0), next = plan.streams.map(() => 0), waits = plan.streams.map(() => []);
  const least = Math.max(0.2, plan.step_us / 2000);
  for (let moved = true; moved;) {
    moved = false;
    plan.streams.forEach((stream, lane) => {
      while (next[lane] < stream.items.length) {
        const [kind, op] = stream.items[next[lane]];
        if (kind === 1 && end[op] < 0) return;
        if (kind === 1) {
          waits[lane].push(op);
          at[lane] = Math.max(at[lane], end[op]);
        } else if (kind === 0) {
          const o = plan.ops[op], begin = at[lane];
          at[lane] = end[op] = begin + Math.max(o.cost_us, least);
          boxes.push({ id: op, lane, begin, end: end[op], label: o.name.split('/').slice(-2).join('/'), colour: colourOf(o.op), bold: o.critical, tip: `${o.name}\nop ${o.op}\nstream ${stream.name}\nmodelled ${o.cost_us.toFixed(1)} us` + (o.critical ? '\non the critical path' : '') + waits[lane].map((w) => `\nwaits for ${plan.ops[w].name} on ${plan.streams[plan.ops[w].stream].name}`).join('') });
          for (const w of waits[lane]) arrows.push({ from: { lane: plan.ops[w].stream, at: end[w], id: w }, to: { lane, at: begin, id: op } });
          waits[lane] = [];
        }
        ++next[lane];
        moved = true;
      }
    });
  }
  if (!boxes.length) throw new Error('the plan is empty');
  new Draw.Lanes(el('plan'), plan.streams.map((s) => s.name), boxes, arrows);
  el('plan-text').textContent = `${plan.ops.length} nodes on ${plan.streams.length} streams, policy ${plan.policy}, ${plan.waits} waits; modelled ${plan.step_us.toFixed(0)} us, one stream ${plan.serial_us.toFixed(0)} us, at least ${plan.critical_us.toFixed(0)} us; bold: critical path`;
}

// ---- refresh ----

async function refresh() {
  try {
    job = await get('/job.json');
    showJob();
    showCurves(await get('/history.json'));
    el('footer').textContent = 'as of ' + new Date(1e3 * job.time).toLocaleTimeString();
  } catch (error) {
    el('state').textContent = 'gone';
    el('state').className = 'pill bad';
    el('footer').textContent = 'no answer: ' + error.message;
  }
  setTimeout(refresh, document.hidden ? 10000 : 1000);
}

for (const cause of CAUSES) {
  const item = node('span');
  item.append(node('i', 'c-' + cause), SAYS[cause]);
  el('legend').append(item);
}
el('filter').oninput = el('sort').onchange = () => { if (job) showWorkers(); };
el('record').onclick = record;
el('show-plan').onclick = async () => {
  try { plan = await get('/plan.json'); showPlan(); } catch (error) { el('plan-text').textContent = error.message; }
};
refresh().then(() => { if (location.hash === '#all') { record(); el('show-plan').click(); } });
