"""Lua scripts for changes of a job that must be atomic. Which changes are allowed is decided in `states`.

A job is a hash: ``v`` (its version), ``record`` and ``progress`` (JSON), and ``queue`` and ``entry``, its place in the
queue until it ends. Its file and result are lists of chunks, its pages a hash, its events a stream.
"""

from __future__ import annotations

# KEYS: job, file, events, the queue it goes to, both queues, same, key
# ARGV: the jobs expected at same and at key, id, record, progress, expires_ms, limit, group, consumer or '', has key
ADD = """
if (redis.call('GET', KEYS[7]) or '') ~= ARGV[1] then return 'changed' end
if ARGV[10] == '1' and (redis.call('GET', KEYS[8]) or '') ~= ARGV[2] then return 'changed' end
local live = redis.call('XLEN', KEYS[5]) + redis.call('XLEN', KEYS[6])
if live >= tonumber(ARGV[7]) then return 'full:' .. live end
local entry = redis.call('XADD', KEYS[4], '*', 'job', ARGV[3])
if ARGV[9] ~= '' then redis.call('XCLAIM', KEYS[4], ARGV[8], ARGV[9], 0, entry, 'FORCE', 'JUSTID') end
redis.call('HSET', KEYS[1], 'v', '0', 'record', ARGV[4], 'progress', ARGV[5], 'queue', KEYS[4], 'entry', entry)
redis.call('XADD', KEYS[3], '*', 'kind', 'progress', 'data', ARGV[5])
redis.call('SET', KEYS[7], ARGV[3], 'PXAT', ARGV[6])
if ARGV[10] == '1' then redis.call('SET', KEYS[8], ARGV[3], 'PXAT', ARGV[6]) end
for index = 1, 3 do redis.call('PEXPIREAT', KEYS[index], ARGV[6]) end
return 'added:' .. entry
"""

# KEYS: job, events, queue, stops, then file, pages, result, same
# ARGV: old version, new version, 'queued' or 'running' or 'ended', record, progress, expires_ms, group, id,
# '1' if cancelled
SWAP = """
local version = redis.call('HGET', KEYS[1], 'v')
if not version then return 'gone' end
if version ~= ARGV[1] then return 'stale' end
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'record', ARGV[4], 'progress', ARGV[5])
if ARGV[3] ~= 'running' then
  local place = redis.call('HMGET', KEYS[1], 'queue', 'entry')
  if place[2] then
    redis.call('XACK', place[1], ARGV[7], place[2])
    redis.call('XDEL', place[1], place[2])
    redis.call('HDEL', KEYS[1], 'queue', 'entry')
  end
end
if ARGV[3] == 'queued' then
  local entry = redis.call('XADD', KEYS[3], '*', 'job', ARGV[8])
  redis.call('HSET', KEYS[1], 'queue', KEYS[3], 'entry', entry)
end
redis.call('XADD', KEYS[2], '*', 'kind', 'progress', 'data', ARGV[5])
if ARGV[3] == 'ended' then redis.call('XADD', KEYS[2], '*', 'kind', 'end', 'data', '') end
if ARGV[9] == '1' then redis.call('XADD', KEYS[4], 'MAXLEN', '~', 1000, '*', 'job', ARGV[8]) end
redis.call('PEXPIREAT', KEYS[1], ARGV[6])
redis.call('PEXPIREAT', KEYS[2], ARGV[6])
for index = 5, 8 do redis.call('PEXPIREAT', KEYS[index], ARGV[6]) end
return 'done'
"""

# KEYS: job, pages, events; ARGV: version, progress, expires_ms, page number or '', packed page, page event
WRITE_PROGRESS = """
if redis.call('HGET', KEYS[1], 'v') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'progress', ARGV[2])
if ARGV[4] ~= '' and redis.call('HSET', KEYS[2], ARGV[4], ARGV[5]) == 1 then
  redis.call('XADD', KEYS[3], '*', 'kind', 'page', 'data', ARGV[6])
  redis.call('PEXPIREAT', KEYS[2], ARGV[3])
end
redis.call('XADD', KEYS[3], '*', 'kind', 'progress', 'data', ARGV[2])
return 1
"""

# KEYS: job, queue; ARGV: group, consumer, entry, version or ''
RENEW = """
local pending = redis.call('XPENDING', KEYS[2], ARGV[1], ARGV[3], ARGV[3], 1)
if #pending == 0 or pending[1][2] ~= ARGV[2] then return 0 end
redis.call('XCLAIM', KEYS[2], ARGV[1], ARGV[2], 0, ARGV[3], 'JUSTID')
if ARGV[4] ~= '' and redis.call('HGET', KEYS[1], 'v') ~= ARGV[4] then return 0 end
return 1
"""
