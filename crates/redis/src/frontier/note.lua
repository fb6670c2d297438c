-- Notes summaries of domains in a shard of the schedule.
-- KEYS: summaries, names, waiting, runnable, sums, owned. ARGV per domain: name, summary, and for how
-- long it is put off, in milliseconds ('' to note only what is newer than the shard's).
-- Answers the names whose summary here is newer, if none is put off.
local call, format = redis.call, string.format
local summaries, names, waiting, runnable, sums, owned = unpack(KEYS)
local time = call('TIME')
-- Microseconds keep the order of domains that become due together.
local now = time[1] * 1000 + time[2] / 1000

-- version, pages, ready, dated, leased, live units, priority, due, first end of a lease
local function numbers(text, count)
  local found = {text:match(('(-?%d+) ?'):rep(count))}
  for at = 1, count do found[at] = found[at] + 0 end
  return found
end

local NOTHING = {0, 0, 0, 0, 0, 0, 0, 0, 0}
local sum = numbers(call('GET', sums) or '0 0 0 0 0 0', 6)
local is_changed = false
local older = {}
for at = 1, #ARGV, 3 do
  local name, text, put_off = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local new = numbers(text, 9)
  local stored = call('HGET', summaries, name)
  local old = stored and numbers(stored, 9) or NOTHING
  if new[1] < old[1] and put_off == '' then older[#older + 1] = name end
  -- A server that lost a key may have the summary of a domain, and not its place.
  local is_lost = new[1] == old[1] and put_off == '' and new[8] > 0
    and not call('ZSCORE', waiting, name) and not call('ZSCORE', runnable, name)
  if new[1] > old[1] or (new[1] == old[1] and put_off ~= '') or is_lost then
    local is_known = new[2] > 0
    sum[1] = sum[1] + (is_known and 1 or 0) - (stored and 1 or 0)
    for i = 2, 6 do sum[i] = sum[i] + new[i] - old[i] end
    is_changed = true
    if is_known then
      call('HSET', summaries, name, text)
      if not stored or is_lost then call('ZADD', names, 0, name) end
    elseif stored then
      call('HDEL', summaries, name)
      call('ZREM', names, name)
    end
    if new[9] > 0 then
      call('ZADD', owned, new[9], name)
    elseif old[9] > 0 or is_lost then
      call('ZREM', owned, name)
    end
    local due = new[8]
    if due > 0 and put_off ~= '' and tonumber(put_off) > 0 then
      due = math.max(due, now + tonumber(put_off))
    end
    if due > now then
      call('ZREM', runnable, name)
      call('ZADD', waiting, due, name)
    else
      local was = tonumber(call('ZSCORE', waiting, name) or now)
      if was then call('ZREM', waiting, name) end
      if due > 0 then
        -- Each level of priority is a head start of a minute.
        local rank = math.min(was, now) + (9 - new[7]) * 60000 + at / 3000
        call('ZADD', runnable, 'LT', rank, name)
      else
        call('ZREM', runnable, name)
      end
    end
  end
end
if is_changed then call('SET', sums, format('%d %d %d %d %d %d', unpack(sum))) end
return older
