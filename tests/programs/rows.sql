CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b REAL);
WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c WHERE x < 40000)
  INSERT INTO t SELECT x, 'row ' || (x * 7919 % 40000), x * 0.5 FROM c;
CREATE INDEX i ON t(a);
SELECT count(*), sum(b), max(a) FROM t;
SELECT a, count(*) FROM t WHERE a LIKE 'row 1%' GROUP BY substr(a, 1, 6) ORDER BY 2 DESC, 1 LIMIT 5;
CREATE TABLE j AS SELECT t1.id AS x, t2.a AS y FROM t t1 JOIN t t2 ON t2.id = t1.id + 1 WHERE t1.id % 3 = 0;
SELECT count(*), group_concat(y) FROM (SELECT y FROM j ORDER BY y LIMIT 20);
