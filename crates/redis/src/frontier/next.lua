-- Returns the domains of a shard that are next, and hides each for a short time from others.
-- KEYS: summaries, waiting, runnable. ARGV: how many, for how long.
-- Answers the time, the rank of the first that is left, the time of the next one that waits, and
-- then names and summaries.
local call = redis.call
local summaries, waiting, runnable = unpack(KEYS)
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = call('ZRANGEBYSCORE', waiting, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 256)
for at = 1, #due, 2 do
  local summary = call('HGET', summaries, due[at]) or ''
  local priority = tonumber(summary:match('(%d+) %d+ %d+$') or 0)
  call('ZADD', runnable, tonumber(due[at + 1]) + (9 - priority) * 60000, due[at])
  call('ZREM', waiting, due[at])
end
local answer = {now, '', ''}
local wanted = tonumber(ARGV[1])
if wanted > 0 then
  local first = call('ZRANGE', runnable, 0, wanted - 1)
  for at = 1, #first do
    answer[#answer + 1] = first[at]
    answer[#answer + 1] = call('HGET', summaries, first[at]) or '0 0 0 0 0 0 0 0 0'
    call('ZADD', waiting, now + tonumber(ARGV[2]), first[at])
  end
  if #first > 0 then call('ZREM', runnable, unpack(first)) end
end
answer[2] = call('ZRANGE', runnable, 0, 0, 'WITHSCORES')[2] or ''
answer[3] = call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2] or ''
return answer
