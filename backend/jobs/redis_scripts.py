"""Lua scripts for changes of a job that must be atomic. Which changes are allowed is decided in `states`.

A job is a hash: ``v`` (its version, or "deleted"), ``by`` (the process that wrote it), ``record`` and ``progress``
(JSON), ``format`` (of the record), ``live_ms`` (its time to live while it waits or runs), ``queue`` and ``entry``, its
place in the queue until it ends, and then ``bytes``, what it takes beside its file. Its file and result are lists of
chunks, its pages a hash, its events a stream, and ``names`` a set: the keys that lead an equal request to it.

Every key of a job gets its expiry in the script that creates it, so that no fault leaves one behind for ever. Scripts
read some key names from Redis: a Redis Cluster cannot run them.
"""

from __future__ import annotations

_SHARED = """
local args = cjson.decode(ARGV[1])

-- Let keys expire, and those of the names that still lead to this job. verb: PEXPIRE or PEXPIREAT
local function expire(verb, when, id, names, keys)
  for _, key in ipairs(keys) do redis.call(verb, key, when) end
  redis.call(verb, names, when)
  for _, name in ipairs(redis.call('SMEMBERS', names)) do
    if redis.call('GET', name) == id then redis.call(verb, name, when) end
  end
end

-- The consumer that an entry of a queue belongs to; nil where it belongs to none
local function owner(queue, entry)
  local pending = redis.pcall('XPENDING', queue, args.group, entry, entry, 1)
  if pending.err then
    if string.find(pending.err, 'NOGROUP') then return nil end
    redis.call('XPENDING', queue, args.group, entry, entry, 1)  -- raises it
  end
  return pending[1] and pending[1][2]
end

-- Create the consumer group where Redis was emptied
local function open(queue)
  local found = redis.pcall('XPENDING', queue, args.group)
  if found.err and string.find(found.err, 'NOGROUP') then
    redis.call('XGROUP', 'CREATE', queue, args.group, '0', 'MKSTREAM')
  end
end

local function leave_queue(job)
  local place = redis.call('HMGET', job, 'queue', 'entry')
  if place[2] then
    redis.call('XACK', place[1], args.group, place[2])
    redis.call('XDEL', place[1], place[2])
    redis.call('HDEL', job, 'queue', 'entry')
  end
end

-- An entry that belongs to this process from the start, in a queue that nobody reads with '>'
local function add_pinned(queue)
  open(queue)
  local entry = redis.call('XADD', queue, '*', 'job', args.id)
  redis.call('XCLAIM', queue, args.group, args.consumer, 0, entry, 'FORCE', 'JUSTID')
  return entry
end

-- How many jobs of an owner have a place in a queue; the others are no longer counted
local function count_live(jobs)
  local live = 0
  for _, id in ipairs(redis.call('SMEMBERS', jobs)) do
    if redis.call('HEXISTS', args.job .. id, 'entry') == 1 then live = live + 1 else redis.call('SREM', jobs, id) end
  end
  return live
end

-- Remove a job and the names that lead to it
local function remove(id)
  local job = args.job .. id
  for _, name in ipairs(redis.call('SMEMBERS', job .. ':names')) do
    if redis.call('GET', name) == id then redis.call('UNLINK', name) end
  end
  local result = job .. ':result:' .. (redis.call('HGET', job, 'v') or '')
  redis.call('UNLINK', job, job .. ':names', job .. ':file', job .. ':pages', job .. ':events', result)
end

local function remove_file(id) redis.call('UNLINK', args.job .. id .. ':file') end

-- Count something of an ended job among its owner's; the oldest go once all take more than args.share_bytes, but for
-- that of the job `kept`
local function count(list, total, size, drop, kept)
  local now = redis.call('TIME')[1] * 1000
  if redis.call('ZADD', list, args.expires_ms, size .. ' ' .. args.id) == 1 then redis.call('INCRBY', total, size) end
  redis.call('PEXPIREAT', list, args.expires_ms)
  redis.call('PEXPIREAT', total, args.expires_ms)
  local bytes, spared = tonumber(redis.call('GET', total) or 0), 0  -- a full Redis may have dropped the total alone
  while true do
    local oldest = redis.call('ZRANGE', list, spared, spared, 'WITHSCORES')
    if not oldest[1] or (bytes <= args.share_bytes and tonumber(oldest[2]) > now) then break end
    local oldest_size, id = string.match(oldest[1], '^(%d+) (.+)$')
    if id == kept then
      spared = 1
    else
      redis.call('ZREM', list, oldest[1])
      drop(id)
      bytes = redis.call('DECRBY', total, oldest_size)
    end
  end
end

-- Its size is known to Redis alone, as replicas write its pages one by one
local function count_ended(job, result, list, total)
  local size = 0
  if args.has_share then
    for _, key in ipairs({job, job .. ':pages', job .. ':events', result}) do
      size = size + (redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0) or 0)
    end
  end
  redis.call('HSET', job, 'bytes', size)
  count(list, total, size, remove, args.id)
end

local function uncount(list, total, size, id)
  if redis.call('ZREM', list, size .. ' ' .. id) == 1 and redis.call('DECRBY', total, size) <= 0 then
    redis.call('UNLINK', total)
  end
end

local function write(job, record, progress)
  redis.call('HSET', job, 'v', args.version, 'by', args.consumer, 'record', record, 'progress', progress,
    'format', args.format, 'live_ms', args.live_ms)
end
"""

# KEYS: a list; ARGV: ms. The list starts with an empty chunk, so that later ones can be added with RPUSHX, which
# fails where the list, and its expiry with it, is gone.
OPEN_LIST = """
redis.call('UNLINK', KEYS[1])
redis.call('RPUSH', KEYS[1], '')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""

# KEYS: job, file. Drop a file unless its job was added.
DISCARD = """
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('UNLINK', KEYS[2]) end
"""

# KEYS: job, file, events, names, the queue it goes to, both queues, its owner's live jobs, same, key (if any)
# ARGV: args, record, progress. args: id, equal and keyed (the jobs expected at same and key), chunks of the file,
# limit, quota (of its owner; 0: none, and then it is not counted), group, consumer, pinned, …
ADD = (
    _SHARED
    + """
if redis.call('EXISTS', KEYS[1]) == 1 then  -- added before, and the reply was lost
  return 'added:' .. (redis.call('HGET', KEYS[1], 'entry') or '')
end
if (redis.call('GET', KEYS[9]) or '') ~= args.equal then return 'changed' end
if KEYS[10] and (redis.call('GET', KEYS[10]) or '') ~= args.keyed then return 'changed' end
if args.quota > 0 then
  local of_owner = count_live(KEYS[8])
  if of_owner >= args.quota then return 'quota:' .. of_owner end
end
local live = redis.call('XLEN', KEYS[6]) + redis.call('XLEN', KEYS[7])
if live >= args.limit then return 'full:' .. live end
if redis.call('LLEN', KEYS[2]) ~= args.chunks then return 'unwritten' end
local entry
if args.pinned then entry = add_pinned(KEYS[5]) else entry = redis.call('XADD', KEYS[5], '*', 'job', args.id) end
write(KEYS[1], ARGV[2], ARGV[3])
redis.call('HSET', KEYS[1], 'queue', KEYS[5], 'entry', entry)
redis.call('XADD', KEYS[3], '*', 'kind', 'progress', 'data', ARGV[3])
if args.quota > 0 then
  redis.call('SADD', KEYS[8], args.id)
  redis.call('PEXPIRE', KEYS[8], args.live_ms)
end
for index = 9, #KEYS do
  redis.call('SET', KEYS[index], args.id)
  redis.call('SADD', KEYS[4], KEYS[index])
end
expire('PEXPIRE', args.live_ms, args.id, KEYS[4], {KEYS[1], KEYS[2], KEYS[3]})
return 'added:' .. entry
"""
)

# KEYS: job, names, key; ARGV: args. Let a further Idempotency-Key lead to a job, for as long as the job is kept.
# args: id, keyed (the job expected at key)
LINK = """
local args = cjson.decode(ARGV[1])
local left_ms = redis.call('PTTL', KEYS[1])
if left_ms <= 0 or (redis.call('GET', KEYS[3]) or '') ~= args.keyed then return end
redis.call('SET', KEYS[3], args.id, 'PX', left_ms)
redis.call('SADD', KEYS[2], KEYS[3])
redis.call('PEXPIRE', KEYS[2], left_ms)
"""

# KEYS: job, names, events, file, pages, result, shared queue, stops, its owner's files and their bytes, ended jobs
# and their bytes
# ARGV: args, record, progress
# args: id, old and version, status ('queued', 'running', 'ended'), expires_ms, cancelled, claimed (queue and entry, or
# empty), chunks of the result (0: none; -1: only say whether a result may be written), …
SWAP = (
    _SHARED
    + """
local state = redis.call('HMGET', KEYS[1], 'v', 'by', 'record')
if not state[1] then return 'gone' end
if state[1] == args.version and state[2] == args.consumer and state[3] == ARGV[2] then  -- done, and the reply was lost
  return 'done'
end
if state[1] ~= args.old then return 'stale' end
if #args.claimed == 2 then
  local place = redis.call('HMGET', KEYS[1], 'queue', 'entry')
  if place[1] ~= args.claimed[1] or place[2] ~= args.claimed[2] or owner(place[1], place[2]) ~= args.consumer then
    return 'lost'
  end
  redis.call('XCLAIM', place[1], args.group, args.consumer, 0, place[2], 'JUSTID')
end
if args.chunks == -1 then return 'ready' end
if args.chunks > 0 and redis.call('LLEN', KEYS[6]) ~= args.chunks then return 'unwritten' end
write(KEYS[1], ARGV[2], ARGV[3])
if args.status ~= 'running' then leave_queue(KEYS[1]) end
if args.status == 'queued' then
  redis.call('HSET', KEYS[1], 'queue', KEYS[7], 'entry', redis.call('XADD', KEYS[7], '*', 'job', args.id))
end
redis.call('XADD', KEYS[3], '*', 'kind', 'progress', 'data', ARGV[3])
local keys = {KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6]}
if args.status == 'ended' then
  redis.call('XADD', KEYS[3], '*', 'kind', 'end', 'data', '')
  expire('PEXPIREAT', args.expires_ms, args.id, KEYS[2], keys)
  count(KEYS[9], KEYS[10], args.size, remove_file)
  count_ended(KEYS[1], KEYS[6], KEYS[11], KEYS[12])
else
  expire('PEXPIRE', args.live_ms, args.id, KEYS[2], keys)
end
if args.cancelled then redis.call('XADD', KEYS[8], 'MAXLEN', '~', 1000, '*', 'job', args.id) end
return 'done'
"""
)

# KEYS: job, names, events, pages, result, same, pinned queue, its owner's ended jobs and their bytes
# ARGV: args, record, progress
# args: id, version, status, expires_ms, chunks of the result, …
# Write a job that Redis has lost; one that runs gets a new place in the queue, as the old one may be lost alone.
RESTORE = (
    _SHARED
    + """
local state = redis.call('HMGET', KEYS[1], 'v', 'by', 'record')
local version = state[1]
if args.status == 'ended' and version == args.version and state[2] == args.consumer and state[3] == ARGV[2] then
  return 'done'  -- restored before, and the reply was lost
end
local ended = args.status == 'ended'
-- A renewal of this process may just have written it again, running
local ours = state[2] == args.consumer and (tonumber(version) or math.huge) < tonumber(args.version)
if version and not (ended and ours) and (ended or version ~= args.version) then return 'stale' end
if args.chunks == -1 then return 'ready' end
if args.chunks > 0 and redis.call('LLEN', KEYS[5]) ~= args.chunks then return 'unwritten' end
if not version or ended then
  write(KEYS[1], ARGV[2], ARGV[3])
  redis.call('XADD', KEYS[3], '*', 'kind', 'progress', 'data', ARGV[3])
  if redis.call('SET', KEYS[6], args.id, 'NX') then redis.call('SADD', KEYS[2], KEYS[6]) end
end
leave_queue(KEYS[1])
if ended then
  redis.call('XADD', KEYS[3], '*', 'kind', 'end', 'data', '')
  expire('PEXPIREAT', args.expires_ms, args.id, KEYS[2], {KEYS[1], KEYS[3], KEYS[4], KEYS[5]})
  count_ended(KEYS[1], KEYS[5], KEYS[8], KEYS[9])
else
  redis.call('HSET', KEYS[1], 'queue', KEYS[7], 'entry', add_pinned(KEYS[7]))
  expire('PEXPIRE', args.live_ms, args.id, KEYS[2], {KEYS[1], KEYS[3]})
end
return 'done'
"""
)

# KEYS: job, its owner's files and their bytes, ended jobs and their bytes; ARGV: args. What stays says for a while that
# the job is not lost but deleted, to a replica that is about to write its result.
# args: id, size (of its file), group, deleted_ms
FORGET = (
    _SHARED
    + """
leave_queue(KEYS[1])
uncount(KEYS[2], KEYS[3], args.size, args.id)
uncount(KEYS[4], KEYS[5], redis.call('HGET', KEYS[1], 'bytes') or '', args.id)
remove(args.id)
redis.call('HSET', KEYS[1], 'v', 'deleted')
redis.call('PEXPIRE', KEYS[1], args.deleted_ms)
"""
)

# KEYS: job, shared queue; ARGV: args. Entries behind the last that a replica was given wait in their order
# args: group
POSITION = """
local args = cjson.decode(ARGV[1])
local place = redis.call('HMGET', KEYS[1], 'queue', 'entry')
if place[1] ~= KEYS[2] or not place[2] then return 0 end
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', KEYS[2])) do
  local group = {}
  for at = 1, #flat, 2 do group[flat[at]] = flat[at + 1] end
  if group.name == args.group then
    return #redis.call('XRANGE', KEYS[2], '(' .. group['last-delivered-id'], place[2])
  end
end
return 0
"""

# KEYS: job, pages, events; ARGV: version, progress, live_ms, page number or '', packed page, page event
WRITE_PROGRESS = """
local version = redis.call('HGET', KEYS[1], 'v')
if not version then return 'gone' end
if version ~= ARGV[1] then return 'stale' end
redis.call('HSET', KEYS[1], 'progress', ARGV[2])
if ARGV[4] ~= '' and redis.call('HSET', KEYS[2], ARGV[4], ARGV[5]) == 1 then
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  redis.call('XADD', KEYS[3], '*', 'kind', 'page', 'data', ARGV[6])
end
if ARGV[7] ~= '' then redis.call('XADD', KEYS[3], '*', 'kind', 'fields', 'data', ARGV[7]) end
redis.call('XADD', KEYS[3], '*', 'kind', 'progress', 'data', ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[3])
return 'done'
"""

# KEYS: job; ARGV: args. args: group, consumer, version (or ''), claimed (queue and entry)
RENEW = (
    _SHARED
    + """
local queue, entry = args.claimed[1], args.claimed[2]
if args.version ~= '' then
  local state = redis.call('HMGET', KEYS[1], 'v', 'queue', 'entry')
  if not state[1] then return 'gone' end
  if state[1] ~= args.version then return 'taken' end
  queue, entry = state[2], state[3]
end
local consumer = queue and owner(queue, entry)
if not consumer then return 'gone' end
if consumer ~= args.consumer then return 'taken' end
redis.call('XCLAIM', queue, args.group, args.consumer, 0, entry, 'JUSTID')
return 'kept'
"""
)

# KEYS: job; ARGV: args. Remove the entry of a job that is no more. args: group, claimed
SETTLE = """
local args = cjson.decode(ARGV[1])
local place = redis.call('HMGET', KEYS[1], 'queue', 'entry')
if place[1] == args.claimed[1] and place[2] == args.claimed[2] then return end
redis.call('XACK', args.claimed[1], args.group, args.claimed[2])
redis.call('XDEL', args.claimed[1], args.claimed[2])
"""

# KEYS: a queue; ARGV: args. Extend the lives of the jobs of so many entries; the last of these, or '' at the end.
# Entries without a job are removed, and pinned ones that belong to nobody are left to whoever looks first. Jobs in a
# format that this version cannot read are left to the versions that can; where there is none any more, they expire.
# args: after, count, group, consumer, pinned, lease_ms, job (what precedes an id in keys), formats (first and last)
SWEEP = (
    _SHARED
    + """
open(KEYS[1])
local rows = redis.call('XRANGE', KEYS[1], args.after, '+', 'COUNT', args.count)
for _, row in ipairs(rows) do
  local entry, id = row[1], row[2][2]
  local job = args.job .. id
  local state = redis.call('HMGET', job, 'entry', 'live_ms', 'format')
  if state[1] ~= entry then
    redis.call('XACK', KEYS[1], args.group, entry)
    redis.call('XDEL', KEYS[1], entry)
  else
    if args.pinned and not owner(KEYS[1], entry) then
      redis.call('XCLAIM', KEYS[1], args.group, args.consumer, 0, entry, 'IDLE', args.lease_ms, 'FORCE', 'JUSTID')
    end
    local format = tonumber(state[3] or args.formats[1])
    if format >= args.formats[1] and format <= args.formats[2] then
      local keys = {job, job .. ':file', job .. ':pages', job .. ':events'}
      expire('PEXPIRE', state[2] or args.live_ms, id, job .. ':names', keys)
    end
  end
end
return #rows == args.count and rows[#rows][1] or ''
"""
)

# KEYS: a queue; ARGV: args. Forget processes that have ended. args: group, idle_ms
FORGET_CONSUMERS = """
local args = cjson.decode(ARGV[1])
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], args.group)) do
  local consumer = {}
  for index = 1, #flat, 2 do consumer[flat[index]] = flat[index + 1] end
  if consumer.pending == 0 and consumer.idle > args.idle_ms then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], args.group, consumer.name)
  end
end
"""

# KEYS: an owner's live jobs; ARGV: args. args: job (what precedes an id in keys)
COUNT_LIVE = _SHARED + "return count_live(KEYS[1])"
