-- Carries out an order. ARGV: owners, order, number. The order 'touch' only makes a new version.
-- Answers 'x' if the domain is unknown, else 'k'.
if version == 0 then return {'x', summary()} end
local what, number = ARGV[2], tonumber(ARGV[3])
if what == 'block' then
  call('HSET', state, 'blocked', number)
  blocked = number
elseif what == 'delay' then
  call('HSET', state, 'delay', number)
  delay = number
  pause(0)
elseif what == 'purge' then
  call('DEL', queue, units)
end
store()
if what == 'delete' then call('DEL', state, pages, queue, units) end
return {'k', summary()}
