// What a request that acts proves itself with where the job has a token: HMAC-SHA256 of the time and the
// target. Written out, because browsers give their own SHA-256 to pages of https and of this host alone.
'use strict';

const Proof = (() => {
  const K = [];
  const first = [];
  for (let n = 2, found = 0; found < 64; ++n) {
    let prime = true;
    for (let d = 2; d * d <= n; ++d) if (n % d === 0) { prime = false; break; }
    if (!prime) continue;
    if (found < 8) first.push((Math.sqrt(n) % 1) * 4294967296 | 0);
    K.push((Math.cbrt(n) % 1) * 4294967296 | 0);
    ++found;
  }
  const turn = (x, n) => (x >>> n) | (x << (32 - n));

  function sha256(bytes) {
    const h = first.slice();
    const padded = new Uint8Array(((bytes.length + 8 >> 6) + 1) << 6);
    padded.set(bytes);
    padded[bytes.length] = 0x80;
    const view = new DataView(padded.buffer);
    view.setUint32(padded.length - 8, Math.floor(bytes.length / 536870912));
    view.setUint32(padded.length - 4, bytes.length << 3);
    const w = new Int32Array(64);
    for (let at = 0; at < padded.length; at += 64) {
      for (let i = 0; i < 16; ++i) w[i] = view.getInt32(at + 4 * i);
      for (let i = 16; i < 64; ++i) {
        const a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) +
          (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10)) | 0;
      }
      let [a, b, c, d, e, f, g, k] = h;
      for (let i = 0; i < 64; ++i) {
        const one = k + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i] | 0;
        const two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c)) | 0;
        k = g; g = f; f = e; e = d + one | 0; d = c; c = b; b = a; a = one + two | 0;
      }
      [a, b, c, d, e, f, g, k].forEach((v, i) => { h[i] = h[i] + v | 0; });
    }
    const out = new Uint8Array(32);
    h.forEach((v, i) => new DataView(out.buffer).setInt32(4 * i, v));
    return out;
  }

  function hmac(key, data) {
    if (key.length > 64) key = sha256(key);
    const inner = new Uint8Array(64 + data.length), outer = new Uint8Array(96);
    inner.fill(0x36, 0, 64);
    outer.fill(0x5c, 0, 64);
    key.forEach((v, i) => { inner[i] ^= v; outer[i] ^= v; });
    inner.set(data, 64);
    outer.set(sha256(inner), 64);
    return sha256(outer);
  }

  const text = (s) => new TextEncoder().encode(s);
  const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');

  /// The Authorization header of a request now; empty without a token.
  function header(token, target) {
    token = token.trim();
    if (!token) return '';
    const key = hmac(text(token), text('braid http'));
    const now = String(Math.floor(Date.now() / 1000));
    return 'Braid ' + now + ' ' + hex(hmac(key, text(now + ' ' + target)));
  }
  return { header, sha256, hex, text };
})();
