-- Values, types, expressions.
select 1, 1.5, 'text', x'00ff', null, true, typeof(1), typeof(1.0), typeof('a'), typeof(x''), typeof(null);
select 7 / 2, -7 / 2, 7 % -3, 7.0 / 2, 1 / 0, 1 << 62, ~5, 6 & 3, 6 | 3, 9223372036854775807 + 1, 'a' || 1 || null, '12abc' + 1;
select 1 = 1.0, '1' = 1, null is null, null = null, 1 between 0 and 2, 3 in (1, 2, 3), 3 not in (1, null), 'abc' like 'A%', 'abc' glob 'a?c', 'a_c' like 'a\_c' escape '\';
select case 5 when 1 then 'one' when 5 then 'five' end, case when 0 then 1 else 2 end, coalesce(null, null, 3), ifnull(null, 4), nullif(5, 5), iif(1 > 2, 'yes', 'no');
select abs(-5), round(2.567, 2), round(-0.5), length('häß'), length(x'0102'), upper('abc'), lower('ABC'), substr('hello', 2, 3), substr('hello', -3), trim('  x '), ltrim('xxy', 'x'), replace('aXbX', 'X', '-'), instr('hello', 'll'), hex('abc'), quote('it''s'), unicode('€'), char(8364, 65), zeroblob(3), min(3, 1, 2), max('a', 'b');
select printf('%5d|%-5s|%05.1f|%x|%q|%Q|%c|%,d', 42, 'ab', 3.14159, 255, 'it''s', null, 'x', 1234567), format('%e', 12345.678);
select cast('12.5' as integer), cast(12.9 as integer), cast('x' as real), cast(65 as text), cast('abc' as blob), cast('9999999999999999999' as integer);
select sin(1), cos(1), exp(1), ln(10), log(2, 8), sqrt(2), pow(2, 0.5), pi(), floor(-1.5), ceil(1.2), mod(7, 2.5), degrees(pi()), trunc(-1.7), atan2(1, -1);
select date('2024-02-29', '+1 year'), datetime(0, 'unixepoch'), strftime('%Y-%j-%W %H:%M:%f', '2024-12-31 23:59:59.5'), julianday('2000-01-01'), date('2024-01-31', 'start of month', '+1 month', '-1 day'), time('12:00', '-90 minutes'), date('2024-05-05', 'weekday 1'), date('nonsense');
select twice(21), twice('x');
select soundex('Robert'), likely(1), typeof(random()), length(randomblob(5)), total(1), group_concat('x'), json('{"a": [1, 2, {"b": null}]}');
-- Tables, constraints, conflicts.
create table people(id integer primary key autoincrement, name text not null unique collate nocase, age int check (age >= 0), town text default 'nowhere', big as (age * 1000) stored, initial as (substr(name, 1, 1)) virtual);
insert into people(name, age, town) values ('Ann', 30, 'Ulm'), ('bob', 25, 'Bonn'), ('Cy', 41, 'Ulm'), ('Dee', null, 'Kiel');
insert into people(name, age) values ('ANN', 1);
insert into people(name, age) values (null, 1);
insert into people(name, age) values ('Eve', -1);
insert or ignore into people(name, age) values ('ann', 99), ('Eve', 52);
insert or replace into people(name, age) values ('BOB', 26);
insert into people(name, age) values ('Ann', 31) on conflict(name) do update set age = excluded.age, town = town || '+' where excluded.age > age returning id, name, age, town, big, initial;
update people set age = age + 1 where town like 'U%' returning name, age;
update people set town = o.t from (select 'Ulm+' f, 'Augsburg' t) o where people.town = o.f;
delete from people where name = 'Dee' returning *;
select * from people order by name desc;
select name from sqlite_schema order by rowid;
select * from sqlite_sequence;
create table strict_one(a int, b text, c any) strict;
insert into strict_one values (1, 'x', x'01'), ('2', 3, 4.5);
insert into strict_one values ('no', 'x', 1);
select *, typeof(a), typeof(b), typeof(c) from strict_one;
create table pairs(a int, b int, c text, primary key (a, b)) without rowid;
insert into pairs values (2, 1, 'x'), (1, 2, 'y'), (1, 1, 'z');
insert into pairs values (1, 1, 'again');
select * from pairs;
-- Foreign keys, triggers, views.
pragma foreign_keys = on;
create table owners(id integer primary key, name text);
create table dogs(id integer primary key, owner int references owners on delete cascade on update cascade, name text);
create table log(what text);
create trigger on_dog after insert on dogs begin insert into log values ('dog ' || new.name); end;
create trigger on_rename before update of name on dogs when old.name <> new.name begin insert into log values (old.name || '>' || new.name); select raise(abort, 'no such name') where new.name = 'bad'; end;
create view kennels(owner, dogs) as select o.name, group_concat(d.name, '+') from owners o left join dogs d on d.owner = o.id group by o.id;
create trigger on_kennel instead of insert on kennels begin insert into owners(name) values (new.owner); insert into dogs(owner, name) values (last_insert_rowid(), new.dogs); end;
insert into owners values (1, 'Olga'), (2, 'Pit');
insert into dogs(owner, name) values (1, 'Rex'), (1, 'Bo'), (2, 'Max');
insert into dogs(owner, name) values (9, 'Stray');
insert into kennels values ('Quin', 'Zoe');
update dogs set name = 'Rexy' where name = 'Rex';
update dogs set name = 'bad' where name = 'Bo';
update owners set id = 7 where id = 1;
delete from owners where name = 'Pit';
select * from kennels;
select * from log;
select * from dogs;
-- Transactions and savepoints.
begin; delete from log; savepoint one; insert into log values ('in one'); savepoint two; insert into log values ('in two'); rollback to two; release one; select * from log; rollback;
select count(*) from log;
commit;
-- A larger table, indexes, joins, grouping.
create table sales(id integer primary key, customer int, product int, day int, amount int, note text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) insert into sales select i, i * 7919 % 101, i * 104729 % 37, i * 31 % 365, 1 + i * 17 % 20, case when i % 5 then 'note ' || (i % 11) end from n;
create index by_product on sales(product, day desc);
create index by_note on sales(note) where note is not null;
create unique index by_expression on sales(id * 2 + 1);
analyze;
select count(*), count(note), count(distinct note), sum(amount), avg(amount), min(day), max(day), total(amount), product(1 + amount % 2) from sales where id < 50;
select product, count(*) n, sum(amount) s from sales where day between 10 and 200 group by product having n > 42 order by s desc, product limit 5 offset 1;
select a.product, b.customer, count(*) from sales a join sales b on a.customer = b.product and a.day = b.day group by 1, 2 order by 3 desc, 1, 2 limit 6;
select p.name, s.c from people p left join (select customer, count(*) c from sales group by customer) s on s.customer = p.id order by p.name;
with x(n, t) as (values (1, 'a'), (2, 'b')), y(m) as (values (2), (3)) select * from x full outer join y on x.n = y.m;
select * from owners natural join (select id, name as n2 from dogs) cross join (select 1);
select count(*) from sales where id * 2 + 1 = 101 or note = 'note 3' and product in (select product from sales where amount = 20);
select exists (select 1 from sales where amount > 20), (select amount from sales order by id desc limit 1), (1, 2) < (1, 3);
select customer from sales where product = 1 union select product from sales where customer = 1 except select 3 intersect select customer from sales where customer < 20 order by 1;
explain query plan select * from sales where product = 3 order by day desc;
explain query plan select * from sales where note = 'note 1';
explain query plan select * from sales a, people b where a.customer = b.id and b.name = 'Ann';
update sales set note = upper(note) where product = 5;
delete from sales where product = 6;
select note, count(*) from sales group by note collate nocase order by note collate backwards limit 8;
reindex;
vacuum;
pragma integrity_check;
pragma table_info(people);
pragma index_list(sales);
-- Windows.
select day, sum(amount) over w, row_number() over w, rank() over (order by amount), dense_rank() over (order by amount), ntile(3) over w, lag(amount, 1, -1) over w, lead(amount) over w, first_value(amount) over w, nth_value(amount, 2) over w, round(percent_rank() over w, 4), round(cume_dist() over w, 4) from sales where customer = 7 and product < 12 window w as (order by day) order by day;
select id, group_concat(amount, ' ') over (order by id rows between 1 preceding and 1 following exclude current row), sum(amount) filter (where amount > 9) over (partition by product % 2 order by id groups between unbounded preceding and current row) from sales where id < 12;
-- Recursion.
with recursive f(n, a, b) as (select 1, 0, 1 union all select n + 1, b, a + b from f where n < 80) select n, b from f where n % 20 = 0;
with recursive
  xaxis(x) as (values(-2.0) union all select x + 0.1 from xaxis where x < 0.8),
  yaxis(y) as (values(-1.0) union all select y + 0.2 from yaxis where y < 1.0),
  m(iter, cx, cy, x, y) as (select 0, x, y, 0.0, 0.0 from xaxis, yaxis union all select iter + 1, cx, cy, x * x - y * y + cx, 2.0 * x * y + cy from m where x * x + y * y < 4.0 and iter < 20),
  m2(iter, cx, cy) as (select max(iter), cx, cy from m group by cx, cy),
  a(t) as (select group_concat(substr(' .+*#', 1 + min(iter / 5, 4), 1), '') from m2 group by cy)
select group_concat(rtrim(t), x'0a') from a;
with recursive tree(id, parent) as (values (1, null), (2, 1), (3, 1), (4, 2), (5, 4)), down(id, depth, path) as (select id, 0, '/' || id from tree where parent is null union all select t.id, depth + 1, path || '/' || t.id from tree t join down on t.parent = down.id order by 2 desc) select * from down;
-- JSON, full-text search, R-trees, generated series.
create table docs(body text);
insert into docs values ('{"name": "x", "tags": ["a", "b"], "size": 3.5}'), ('{"name": "y", "tags": [], "size": null}'), ('not json');
select json_extract(body, '$.name', '$.tags[0]'), body ->> '$.size', body -> 'tags', json_array_length(body, '$.tags'), json_type(body, '$.size') from docs where json_valid(body);
select json_extract(body, '$.name') from docs;
select key, value, type, path from docs, json_each(body, '$.tags') where json_valid(body);
select json_set('{"a": 1}', '$.b', json_array(1, 'x', null)), json_remove('[1, 2, 3]', '$[1]'), json_patch('{"a": 1}', '{"a": null, "b": 2}'), json_group_array(name), json_group_object(name, age) from people;
select fullkey, atom from json_tree('{"a": [1, {"b": true}]}') where atom is not null;
create virtual table texts using fts5(title, body, tokenize = 'porter');
insert into texts values ('first', 'The cats are running in the garden'), ('second', 'A dog runs after one cat'), ('third', 'Nothing to see');
select title, highlight(texts, 1, '<', '>'), snippet(texts, 1, '[', ']', '...', 3), round(bm25(texts), 6) from texts where texts match 'cat AND run' order by rank;
select title from texts where texts match 'title: f* OR "nothing to"' order by rowid;
create virtual table old_texts using fts3(body);
insert into old_texts values ('one two three'), ('two three four'), ('three four five');
select docid, offsets(old_texts), snippet(old_texts) from old_texts where body match '"two three"';
create virtual table boxes using rtree(id, x0, x1, y0, y1);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200) insert into boxes select i, i % 20, i % 20 + 1.5, i / 20, i / 20 + 1.5 from n;
select count(*), sum(id) from boxes where x0 >= 3 and x1 <= 8 and y0 >= 2 and y1 <= 6;
select rtreecheck('boxes');
-- Changes of the schema, attached databases, temporary tables, errors.
alter table pairs add column d default 'new';
alter table pairs rename column c to third;
alter table pairs rename to triples;
alter table triples drop column d;
select sql from sqlite_schema where name = 'triples';
attach ':memory:' as other;
create table other.t as select id, name from people;
create temp table t2 as select * from other.t where id > 1;
select * from other.t join t2 using (id) order by id;
detach other;
drop view kennels;
drop table dogs;
select * from no_such_table;
select no_such_function(1);
select 1 +;
select count(*) from sqlite_schema;
pragma user_version = 77;
pragma user_version;
pragma page_size;
