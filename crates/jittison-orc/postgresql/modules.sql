-- jittison_modules(): which compiled code of this backend is in memory now. A row goes when the memory of its module is free.
-- Run it with psql in each database: psql -v provider=jittison -f modules.sql
CREATE FUNCTION jittison_modules_json() RETURNS cstring AS :'provider', 'jittison_modules_json' LANGUAGE C STRICT;

CREATE FUNCTION jittison_modules(
    OUT session bigint, OUT dylib text, OUT tracker text, OUT module text, OUT code bigint, OUT constants bigint, OUT data bigint)
RETURNS SETOF record LANGUAGE sql AS $$
    SELECT * FROM json_to_recordset(textin(jittison_modules_json())::json)
        AS x(session bigint, dylib text, tracker text, module text, code bigint, constants bigint, data bigint)
$$;
