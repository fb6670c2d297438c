-- Carries out an order. ARGV: owners, order, number. The order 'touch' only makes a new version;
-- 'expire' ends the units whose lease is over, with the number as spacing.
-- Answers 'x' if the domain is unknown, else 'k'.
if version == 0 then return {'x', summary()} end
local what, number = ARGV[2], tonumber(ARGV[3])
if what == 'block' then
  blocked = number
elseif what == 'delay' then
  delay = number
elseif what == 'limit' then
  limit = number
elseif what == 'expire' then
  expire(number)
elseif what == 'purge' then
  call('DEL', queue, units)
end
store()
if what == 'delete' then call('DEL', state, pages, queue, units) end
return {'k', summary()}
