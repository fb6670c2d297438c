-- Forgets pages that were added before an age, except those of units. ARGV: owners, age in
-- milliseconds, cursor of the walk over the pages, about how many pages.
-- Answers 'k' with the next cursor and the number of forgotten pages.
local held = {}
local values = call('HVALS', units)
for at = 1, #values do
  for from = 17, #values[at], 32 do held[values[at]:sub(from, from + 15)] = true end
end
local walk = call('HSCAN', pages, ARGV[3], 'COUNT', ARGV[4])
local forgotten = 0
for at = 1, #walk[2], 2 do
  local hash, added = walk[2][at], tonumber(walk[2][at + 1]:match('^%d(%d+)'))
  if added and added < now - tonumber(ARGV[2]) and not held[hash] then
    call('ZREM', queue, hash)
    forgotten = forgotten + call('HDEL', pages, hash)
  end
end
if forgotten > 0 then store() end
return {'k', summary(), {walk[1], forgotten}}
