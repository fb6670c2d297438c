-- Notes the visit of a page, whichever unit has it. ARGV: owners, hash, status, date or '',
-- spacing, the rest of the row.
-- Answers 'x' if the page is unknown, else 'k' with the token of the unit that had it, or ''.
local hash = ARGV[2]
local row = call('HGET', pages, hash)
if expire(tonumber(ARGV[5])) then store() end
if not row then return {'x', summary()} end
local owner = ''
local held = call('HGETALL', units)
for at = 1, #held, 2 do
  local token, value = held[at], held[at + 1]
  for from = 17, #value, 32 do
    if owner == '' and value:sub(from, from + 15) == hash then
      owner = token
      value = value:sub(1, from - 1) .. value:sub(from + 32)
      if #value > 16 then
        call('HSET', units, token, value)
      else
        call('HDEL', units, token)
        if value:sub(1, 1) == 'o' then pause(tonumber(ARGV[5])) end
      end
    end
  end
end
if owner == '' then call('ZREM', queue, hash) end
row = row:match('^%d+') .. ';' .. ARGV[6]
call('HSET', pages, hash, visited(row, ARGV[3], ARGV[4], 0, 0))
if ARGV[4] ~= '' then call('ZADD', queue, DATED + tonumber(ARGV[4]), hash) end
store()
return {'k', summary(), owner}
