BEGIN TRANSACTION;
CREATE TABLE agent_metadata (
        thread_id TEXT PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        profile TEXT NOT NULL DEFAULT '',
        kind TEXT NOT NULL CHECK (kind IN ('persistent', 'ephemeral')),
        created_for_task INTEGER REFERENCES tasks (number) ON DELETE SET NULL,
        parent_thread_id TEXT REFERENCES threads (id) ON DELETE SET NULL,
        current_task TEXT,
        created_at REAL NOT NULL
    );
INSERT INTO "agent_metadata" VALUES('nb_20261123_sessio.1','any','scripted','any','','persistent',1,'nb_20261123_sessio',NULL,1763856000.0);
CREATE TABLE contents (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,            -- within its run, from 1
        kind TEXT NOT NULL,                 -- system, user, assistant: a text; message, tools: JSON
        body TEXT NOT NULL,
        PRIMARY KEY (run, number)
    );
INSERT INTO "contents" VALUES(1,1,'user','the task');
INSERT INTO "contents" VALUES(1,2,'system','<instructions>
You work for a person in a Jupyter notebook. Answer in Markdown and to the point. When you are unsure, or something could not be found out, say so.
</instructions>

<agent_capabilities>
You can delegate to sub-agents. Delegate only when the task gains from it, as with independent parts or steps that build on each other; otherwise answer yourself. To delegate, end your reply with one block in exactly one of these forms, outside any code fence or backticks (there it is an example and is not run):

<spawn_agents mode="parallel">
  <agent task="List the main arguments for a carbon tax, with one source each." />
  <agent task="List the main arguments against a carbon tax, with one source each." />
</spawn_agents>

<spawn_agents mode="sequential">
  <agent task="Write a Python function that merges overlapping intervals." />
  <agent task="Review the function in the previous result and correct its mistakes." />
</spawn_agents>

Parallel: all at once. Sequential: one by one, each handed the result of the one before it. Otherwise a sub-agent shares your personality but sees nothing of its siblings or of this conversation, so make each task specific and self-contained. Inside a task write &quot; for a double quote.

Text before the block is welcome: explain your approach there. Afterwards the results come back to you, and you bring them together in one answer. Your sub-agents may delegate further: there are 3 levels below you.
</agent_capabilities>');
INSERT INTO "contents" VALUES(1,3,'tools','[{"name":"look","description":"Looks.","input_schema":{"type":"object"}}]');
INSERT INTO "contents" VALUES(1,4,'user','P');
INSERT INTO "contents" VALUES(1,5,'system','<sub_agent_instructions>
You are a sub-agent: another agent has given you one focused sub-task, which stands at the end. Answer it directly, thorough and to the point. Your answer goes back to that agent, which sees nothing else of your work, and you cannot ask it anything: where something is missing, make a sensible assumption and name it.
</sub_agent_instructions>

<agent_capabilities>
You can delegate to sub-agents. Delegate only when the task gains from it, as with independent parts or steps that build on each other; otherwise answer yourself. To delegate, end your reply with one block in exactly one of these forms, outside any code fence or backticks (there it is an example and is not run):

<spawn_agents mode="parallel">
  <agent task="List the main arguments for a carbon tax, with one source each." />
  <agent task="List the main arguments against a carbon tax, with one source each." />
</spawn_agents>

<spawn_agents mode="sequential">
  <agent task="Write a Python function that merges overlapping intervals." />
  <agent task="Review the function in the previous result and correct its mistakes." />
</spawn_agents>

Parallel: all at once. Sequential: one by one, each handed the result of the one before it. Otherwise a sub-agent shares your personality but sees nothing of its siblings or of this conversation, so make each task specific and self-contained. Inside a task write &quot; for a double quote.

Text before the block is welcome: explain your approach there. Afterwards the results come back to you, and you bring them together in one answer. Your sub-agents may delegate further: there are 2 levels below you.
</agent_capabilities>

<task>
P
</task>');
INSERT INTO "contents" VALUES(1,6,'user','Q');
INSERT INTO "contents" VALUES(1,7,'system','<sub_agent_instructions>
You are a sub-agent: another agent has given you one focused sub-task, which stands at the end. Answer it directly, thorough and to the point. Your answer goes back to that agent, which sees nothing else of your work, and you cannot ask it anything: where something is missing, make a sensible assumption and name it.
</sub_agent_instructions>

<agent_capabilities>
You can delegate to sub-agents. Delegate only when the task gains from it, as with independent parts or steps that build on each other; otherwise answer yourself. To delegate, end your reply with one block in exactly one of these forms, outside any code fence or backticks (there it is an example and is not run):

<spawn_agents mode="parallel">
  <agent task="List the main arguments for a carbon tax, with one source each." />
  <agent task="List the main arguments against a carbon tax, with one source each." />
</spawn_agents>

<spawn_agents mode="sequential">
  <agent task="Write a Python function that merges overlapping intervals." />
  <agent task="Review the function in the previous result and correct its mistakes." />
</spawn_agents>

Parallel: all at once. Sequential: one by one, each handed the result of the one before it. Otherwise a sub-agent shares your personality but sees nothing of its siblings or of this conversation, so make each task specific and self-contained. Inside a task write &quot; for a double quote.

Text before the block is welcome: explain your approach there. Afterwards the results come back to you, and you bring them together in one answer. Your sub-agents may delegate further: there are 2 levels below you.
</agent_capabilities>

<task>
Q
</task>');
INSERT INTO "contents" VALUES(1,8,'message','{"role":"user","content":[{"kind":"tool_result_block","tool_use_id":"t1","text":"seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. ","is_error":false}]}');
INSERT INTO "contents" VALUES(1,9,'user','P1');
INSERT INTO "contents" VALUES(1,10,'system','<sub_agent_instructions>
You are a sub-agent: another agent has given you one focused sub-task, which stands at the end. Answer it directly, thorough and to the point. Your answer goes back to that agent, which sees nothing else of your work, and you cannot ask it anything: where something is missing, make a sensible assumption and name it.
</sub_agent_instructions>

<agent_capabilities>
You can delegate to sub-agents. Delegate only when the task gains from it, as with independent parts or steps that build on each other; otherwise answer yourself. To delegate, end your reply with one block in exactly one of these forms, outside any code fence or backticks (there it is an example and is not run):

<spawn_agents mode="parallel">
  <agent task="List the main arguments for a carbon tax, with one source each." />
  <agent task="List the main arguments against a carbon tax, with one source each." />
</spawn_agents>

<spawn_agents mode="sequential">
  <agent task="Write a Python function that merges overlapping intervals." />
  <agent task="Review the function in the previous result and correct its mistakes." />
</spawn_agents>

Parallel: all at once. Sequential: one by one, each handed the result of the one before it. Otherwise a sub-agent shares your personality but sees nothing of its siblings or of this conversation, so make each task specific and self-contained. Inside a task write &quot; for a double quote.

Text before the block is welcome: explain your approach there. Afterwards the results come back to you, and you bring them together in one answer. Your sub-agents cannot delegate further: there is 1 level below you.
</agent_capabilities>

<task>
P1
</task>');
INSERT INTO "contents" VALUES(1,11,'user','<sub_agent_results>
  <result task="P1" status="completed">
    P1 is done
  </result>
</sub_agent_results>

Your sub-agents have finished; their results stand above, in the order of their tasks. Synthesise them: bring them together into one complete answer to the original request. Where a task did not complete, name what is missing. Do not start further sub-agents.');
INSERT INTO "contents" VALUES(1,12,'user','<sub_agent_results>
  <result task="P" status="completed">
    both of P
  </result>
  <result task="Q" status="completed">
    Q is done
  </result>
</sub_agent_results>

Your sub-agents have finished; their results stand above, in the order of their tasks. Synthesise them: bring them together into one complete answer to the original request. Where a task did not complete, name what is missing. Do not start further sub-agents.');
CREATE TABLE ends (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        place INTEGER NOT NULL,             -- in the order in which the agents ended, from 1
        path TEXT,                          -- the agent's; NULL for the run
        attempt INTEGER NOT NULL,
        status TEXT NOT NULL,
        text TEXT,                          -- NULL: a part of the text of the agent's call
        number INTEGER,                     -- the number of that call
        first INTEGER,                      -- the part's first character, from 0; NULL: all of it
        length INTEGER,                     -- how many characters
        error TEXT,
        cut INTEGER NOT NULL,
        tokens_used NOT NULL,
        duration_ms NOT NULL,
        at_s REAL NOT NULL,
        by TEXT NOT NULL,                   -- who cancelled it; empty if nobody did
        PRIMARY KEY (run, place)
    ) WITHOUT ROWID
    ;
INSERT INTO "ends" VALUES(1,1,'2',1,'completed',NULL,1,NULL,NULL,NULL,0,433,0,0.0,'');
INSERT INTO "ends" VALUES(1,2,'1.1',1,'completed',NULL,1,NULL,NULL,NULL,0,433,0,0.0,'');
INSERT INTO "ends" VALUES(1,3,'1',1,'completed',NULL,3,NULL,NULL,NULL,0,2941,0,0.0,'');
INSERT INTO "ends" VALUES(1,4,'root',1,'completed',NULL,2,NULL,NULL,NULL,0,920,0,0.0,'');
INSERT INTO "ends" VALUES(1,5,NULL,1,'completed','',NULL,NULL,NULL,NULL,0,4727,0,0.0,'');
CREATE TABLE events (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        at_s REAL NOT NULL,
        kind TEXT NOT NULL,
        path TEXT,                          -- the agent's; NULL for an event of the run
        number INTEGER,                     -- of the record that has the rest of its fields
        body TEXT,                          -- JSON: the fields that no record has
        PRIMARY KEY (run, seq)
    ) WITHOUT ROWID
    ;
INSERT INTO "events" VALUES(1,0,0.0,'run_started',NULL,NULL,'{"task_description":"the task","model":"scripted/any","budget_total":1000000,"max_depth":3,"thread_id":"nb_20261123_sample"}');
INSERT INTO "events" VALUES(1,1,0.0,'agent_spawned','root',NULL,'{"agent_id":"nb_20261123_sample","parent_id":null,"task_description":"the task","depth":0,"index":0,"total":1,"model":"scripted/any","mode":null,"job_id":"","profile":""}');
INSERT INTO "events" VALUES(1,2,0.0,'model_call_started','root',1,NULL);
INSERT INTO "events" VALUES(1,3,0.0,'budget_update',NULL,NULL,'{"tokens_used":379,"budget_total":1000000,"percentage":0.0379}');
INSERT INTO "events" VALUES(1,7,0.0,'model_call_finished','root',1,NULL);
INSERT INTO "events" VALUES(1,8,0.0,'agent_spawned','1',NULL,'{"agent_id":"nb_20261123_sample.1","parent_id":"nb_20261123_sample","task_description":"P","depth":1,"index":0,"total":2,"model":"scripted/any","mode":"parallel","job_id":"","profile":""}');
INSERT INTO "events" VALUES(1,9,0.0,'agent_spawned','2',NULL,'{"agent_id":"nb_20261123_sample.2","parent_id":"nb_20261123_sample","task_description":"Q","depth":1,"index":1,"total":2,"model":"scripted/any","mode":"parallel","job_id":"","profile":""}');
INSERT INTO "events" VALUES(1,10,0.0,'model_call_started','1',1,NULL);
INSERT INTO "events" VALUES(1,11,0.0,'model_call_started','2',1,NULL);
INSERT INTO "events" VALUES(1,14,0.0,'model_call_finished','1',1,NULL);
INSERT INTO "events" VALUES(1,15,0.0,'model_call_finished','2',1,NULL);
INSERT INTO "events" VALUES(1,16,0.0,'tool_call_started','1',1,NULL);
INSERT INTO "events" VALUES(1,17,0.0,'agent_completed','2',1,NULL);
INSERT INTO "events" VALUES(1,18,0.0,'tool_call_finished','1',1,'{"cut_at":2000}');
INSERT INTO "events" VALUES(1,19,0.0,'model_call_started','1',2,NULL);
INSERT INTO "events" VALUES(1,22,0.0,'model_call_finished','1',2,NULL);
INSERT INTO "events" VALUES(1,23,0.0,'agent_spawned','1.1',NULL,'{"agent_id":"nb_20261123_sample.1.1","parent_id":"nb_20261123_sample.1","task_description":"P1","depth":2,"index":0,"total":1,"model":"scripted/any","mode":"parallel","job_id":"","profile":""}');
INSERT INTO "events" VALUES(1,24,0.0,'model_call_started','1.1',1,NULL);
INSERT INTO "events" VALUES(1,26,0.0,'model_call_finished','1.1',1,NULL);
INSERT INTO "events" VALUES(1,27,0.0,'agent_completed','1.1',2,NULL);
INSERT INTO "events" VALUES(1,28,0.0,'synthesis_started','1',NULL,'{"agent_id":"nb_20261123_sample.1","total":1}');
INSERT INTO "events" VALUES(1,29,0.0,'model_call_started','1',3,NULL);
INSERT INTO "events" VALUES(1,31,0.0,'model_call_finished','1',3,NULL);
INSERT INTO "events" VALUES(1,32,0.0,'agent_completed','1',3,NULL);
INSERT INTO "events" VALUES(1,33,0.0,'synthesis_started','root',NULL,'{"agent_id":"nb_20261123_sample","total":2}');
INSERT INTO "events" VALUES(1,34,0.0,'model_call_started','root',2,NULL);
INSERT INTO "events" VALUES(1,37,0.0,'model_call_finished','root',2,NULL);
INSERT INTO "events" VALUES(1,38,0.0,'agent_completed','root',4,NULL);
INSERT INTO "events" VALUES(1,39,0.0,'budget_update',NULL,NULL,'{"tokens_used":4727,"budget_total":1000000,"percentage":0.4727}');
INSERT INTO "events" VALUES(1,40,0.0,'run_finished',NULL,5,NULL);
CREATE TABLE memories (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        text TEXT NOT NULL CHECK (trim(text) <> ''),
        source_agent_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        created_at REAL NOT NULL
    );
INSERT INTO "memories" VALUES(1,'the sea is deep','nb_20261123_sessio.1','r',1763856000.0);
CREATE VIRTUAL TABLE memories_text USING fts5 (text, content='memories', content_rowid='id');
CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
        place INTEGER CHECK (place >= 1),   -- in the conversation; NULL while it is queued
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
        kind TEXT NOT NULL
            CHECK (kind IN ('message', 'task_assignment', 'task_completion', 'note')),
        content TEXT NOT NULL,
        author TEXT,                        -- an agent's thread
        run_id TEXT,
        created_at REAL NOT NULL,
        UNIQUE (thread_id, place)
    );
INSERT INTO "messages" VALUES(1,'nb_20261123_sessio.1',1,'user','message','said before',NULL,NULL,1763856000.0);
INSERT INTO "messages" VALUES(2,'nb_20261123_sessio.1',NULL,'user','message','said now',NULL,NULL,1763856000.0);
CREATE TABLE model_calls (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        number INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        key TEXT NOT NULL,
        model TEXT NOT NULL,
        is_synthesis INTEGER NOT NULL,
        request TEXT NOT NULL,              -- JSON: numbers of contents, see agentnb.store.reader
        at_s REAL NOT NULL,
        status TEXT NOT NULL,               -- started, finished
        text TEXT,                          -- the reply's text so far
        pieces BLOB,                        -- the text deltas: lengths, times, seqs
        message TEXT,                       -- JSON; `true` if it is the text and nothing else
        stop_reason TEXT,
        usage TEXT,                         -- JSON: [input, output, cache creation, cache read]
        error TEXT,                         -- JSON
        duration_ms,
        estimate_error NOT NULL,
        PRIMARY KEY (run, path, number)
    );
INSERT INTO "model_calls" VALUES(1,'root',1,1,'e386c67c545edbeb4d7055d691471df9de1a1bff806cc61d1d952b2f7d9b613e','scripted/any',0,'{"after":0,"same":0,"new":[1],"system":2,"tools":3,"max_tokens":8192,"cache_prefix":0}',0.0,'finished','Two parts.

<spawn_agents mode="parallel"><agent task="P" /><agent task="Q" /></spawn_agents>',X'00420000030000000300000004000000000000001A291A000000000000000000000000000000000000000000000000','true','end_turn','[379,24,0,0]',NULL,0,0);
INSERT INTO "model_calls" VALUES(1,'1',1,1,'9febda71a44e54fa0e5a8d2f7a8bfbe34660248c34a0c3456c87aa472b95e713','scripted/any',0,'{"after":0,"same":0,"new":[4],"system":5,"tools":3,"max_tokens":8192,"cache_prefix":0}',0.0,'finished','I look.',X'0042000001000000010000000C00000000000000070000000000000000','{"role":"assistant","content":[{"kind":"text_block"},{"kind":"tool_use_block","id":"t1","name":"look","input":{"where":"at sea"}}]}','tool_use','[430,8,0,0]',NULL,0,0);
INSERT INTO "model_calls" VALUES(1,'2',1,1,'46b9d2f4e810c51286b23ce9d7e2fb4d9433e2eee73416a76f5066cb3edc22d0','scripted/any',0,'{"after":0,"same":0,"new":[6],"system":7,"tools":3,"max_tokens":8192,"cache_prefix":0}',0.0,'finished','Q is done',X'0042000001000000010000000D00000000000000090000000000000000','true','end_turn','[430,3,0,0]',NULL,0,0);
INSERT INTO "model_calls" VALUES(1,'1',2,1,'27b7ed00a470cfe8c31548d3aefb1b77936198267456c23eb7964a45d91a5e31','scripted/any',0,'{"after":1,"same":1,"new":[-1, 8],"system":5,"tools":3,"max_tokens":8192,"cache_prefix":1669}',0.0,'finished','<spawn_agents mode="parallel"><agent task="P1" /></spawn_agents>',X'00420000020000000200000014000000000000002F1100000000000000000000000000000000','true','end_turn','[1188,16,0,0]',NULL,0,0);
INSERT INTO "model_calls" VALUES(1,'1.1',1,1,'5d5ff2972fdc2b4c5cc5125c4e1dd115b2b0f7471181fd42d3ecbb78cc26a701','scripted/any',0,'{"after":0,"same":0,"new":[9],"system":10,"tools":3,"max_tokens":8192,"cache_prefix":0}',0.0,'finished','P1 is done',X'00420000010000000100000019000000000000000A0000000000000000','true','end_turn','[430,3,0,0]',NULL,0,0);
INSERT INTO "model_calls" VALUES(1,'1',3,1,'3d6f59a76a937a7c63905855050c0777a7ea37be43a23759115ddcad07539721','scripted/any',1,'{"after":2,"same":3,"new":[-2, 11],"system":5,"tools":3,"max_tokens":8192,"cache_prefix":1669}',0.0,'finished','both of P',X'0042000001000000010000001E00000000000000090000000000000000','true','end_turn','[1296,3,0,0]',NULL,0,0);
INSERT INTO "model_calls" VALUES(1,'root',2,1,'c81e02b218d529f05a7c2d23dc7fc572e07cd120c55d5a7c98d04e9799365d24','scripted/any',1,'{"after":1,"same":1,"new":[-1, 12],"system":2,"tools":3,"max_tokens":8192,"cache_prefix":0}',0.0,'finished','all of it: ü, 二, ​',X'00420000020000000200000023000000000000000B0700000000000000000000000000000000','true','end_turn','[511,6,0,0]',NULL,0,0);
CREATE TABLE orders (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        place INTEGER NOT NULL,             -- in the order in which they were heard, from 1
        kind TEXT NOT NULL,
        by TEXT NOT NULL,
        path TEXT NOT NULL,
        number INTEGER NOT NULL,            -- of the newest call
        at_s REAL NOT NULL,
        value TEXT NOT NULL,                -- JSON
        PRIMARY KEY (run, place)
    ) WITHOUT ROWID
    ;
CREATE TABLE pots (
        run_id TEXT PRIMARY KEY,
        process INTEGER REFERENCES processes (id) ON DELETE SET NULL
    ) WITHOUT ROWID
    ;
CREATE TABLE processes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        started_at REAL NOT NULL            -- seconds since 1970
    );
INSERT INTO "processes" VALUES(1,'host',1,1763856000.0);
CREATE TABLE queue (
        message INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
        thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
        process INTEGER REFERENCES processes (id) ON DELETE SET NULL,   -- that will run it
        kind TEXT NOT NULL CHECK (kind IN ('run', 'notice')),
        task INTEGER REFERENCES tasks (number) ON DELETE SET NULL,
        pot TEXT,                           -- the run in whose budget its own run stands
        settings TEXT NOT NULL,             -- JSON: those that were given for its run
        run_id TEXT                         -- its run, once that has begun
    );
INSERT INTO "queue" VALUES(2,'nb_20261123_sessio.1',1,'run',NULL,NULL,'{"budget": 5}',NULL);
CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        thread_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        name TEXT NOT NULL,
        tags TEXT NOT NULL,                 -- JSON: [tag, …]
        task TEXT NOT NULL,
        model TEXT NOT NULL,
        budget_total NOT NULL,
        max_depth NOT NULL,
        settings TEXT NOT NULL,             -- JSON object
        started_at REAL NOT NULL,           -- seconds since 1970
        process INTEGER REFERENCES processes (id) ON DELETE SET NULL,
        version TEXT NOT NULL,              -- of agentnb
        status TEXT,                        -- this and what follows: NULL until the run has ended
        error TEXT,
        agents INTEGER,
        tokens_used,
        usage TEXT,                         -- JSON: {model: a usage as in model_calls}
        duration_ms
    );
INSERT INTO "runs" VALUES(1,'01a2066d6b1e75d7a4afade572a643b9','nb_20261123_sample','','a sample','[]','the task','scripted/any',1000000,3,'{}',1763856000.0,1,'','completed',NULL,4,4727,'{"scripted/any":[4664,63,0,0]}',0);
CREATE TABLE task_notes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        task INTEGER NOT NULL REFERENCES tasks (number) ON DELETE CASCADE,
        text TEXT NOT NULL,
        author TEXT REFERENCES threads (id) ON DELETE SET NULL,
        created_at REAL NOT NULL
    );
INSERT INTO "task_notes" VALUES(1,1,'a note',NULL,1763856000.0);
CREATE TABLE tasks (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
        id TEXT NOT NULL,
        title TEXT NOT NULL CHECK (trim(title) <> ''),
        prompt TEXT NOT NULL,
        status TEXT NOT NULL
            CHECK (status IN ('pending', 'in_progress', 'completed', 'blocked', 'archived')),
        priority TEXT NOT NULL CHECK (priority IN ('high', 'medium', 'low')),
        assigned_to TEXT REFERENCES threads (id) ON DELETE SET NULL,
        created_by TEXT REFERENCES threads (id) ON DELETE SET NULL,
        pot TEXT,                           -- the run in whose budget the work on it stands
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL, above TEXT NOT NULL DEFAULT '[]',
        UNIQUE (session_id, id)
    );
INSERT INTO "tasks" VALUES(1,'nb_20261123_sessio','t1','Look','Look at it.','in_progress','high','nb_20261123_sessio.1',NULL,NULL,1763856000.0,1763856000.0,'[]');
CREATE TABLE threads (
        id TEXT PRIMARY KEY,
        session_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
        parent_id TEXT REFERENCES threads (id) ON DELETE CASCADE,
        forked_from TEXT REFERENCES threads (id) ON DELETE SET NULL,
        next_child INTEGER NOT NULL DEFAULT 1 CHECK (next_child >= 1),
        next_task INTEGER NOT NULL DEFAULT 1 CHECK (next_task >= 1),    -- of a session
        process INTEGER REFERENCES processes (id) ON DELETE SET NULL,   -- that is at work on it
        run_id TEXT,                        -- of its newest run
        title TEXT NOT NULL DEFAULT '',     -- the beginning of its first message
        created_at REAL NOT NULL            -- seconds since 1970, as all times here
    );
INSERT INTO "threads" VALUES('nb_20261123_sessio','nb_20261123_sessio',NULL,NULL,1,1,NULL,NULL,'',1763856000.0);
INSERT INTO "threads" VALUES('nb_20261123_sessio.1','nb_20261123_sessio','nb_20261123_sessio',NULL,1,1,NULL,NULL,'said before',1763856000.0);
CREATE TABLE tool_calls (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        number INTEGER NOT NULL,
        agent_id TEXT NOT NULL,
        tool_use_id TEXT NOT NULL,
        name TEXT NOT NULL,
        input TEXT NOT NULL,                -- JSON object, whole
        effects INTEGER NOT NULL,
        at_s REAL NOT NULL,
        status TEXT NOT NULL,               -- started, finished
        result TEXT,                        -- whole
        is_error INTEGER NOT NULL,
        duration_ms,
        PRIMARY KEY (run, path, number)
    );
INSERT INTO "tool_calls" VALUES(1,'1',1,'nb_20261123_sample.1','t1','look','{"where":"at sea"}',1,0.0,'finished','seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. seen far away. ',0,0);
CREATE TABLE verdicts (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        number INTEGER NOT NULL,
        kind TEXT NOT NULL,
        value TEXT NOT NULL,                -- JSON
        PRIMARY KEY (run, path, number)
    ) WITHOUT ROWID
    ;
INSERT INTO "verdicts" VALUES(1,'1',1,'admitted','{"numbers":[1],"refused":[]}');
INSERT INTO "verdicts" VALUES(1,'root',1,'admitted','{"numbers":[1,2],"refused":[]}');
CREATE INDEX runs_by_time ON runs (started_at);
CREATE INDEX threads_by_session ON threads (session_id, created_at);
CREATE INDEX threads_by_parent ON threads (parent_id);
CREATE INDEX threads_by_origin ON threads (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX threads_at_work ON threads (run_id) WHERE process IS NOT NULL;
CREATE INDEX tasks_by_agent ON tasks (assigned_to);
CREATE INDEX tasks_by_creator ON tasks (created_by);
CREATE INDEX task_notes_by_task ON task_notes (task);
CREATE INDEX agents_by_name ON agent_metadata (name);
CREATE INDEX agents_by_parent ON agent_metadata (parent_thread_id);
CREATE INDEX queue_by_thread ON queue (thread_id, message);
CREATE INDEX runs_by_thread ON runs (thread_id);
CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
        INSERT INTO memories_text (rowid, text) VALUES (new.id, new.text);
    END;
CREATE TRIGGER memories_deleted AFTER DELETE ON memories BEGIN
        INSERT INTO memories_text (memories_text, rowid, text)
        VALUES ('delete', old.id, old.text);
    END;
CREATE INDEX threads_by_process ON threads (process) WHERE process IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('processes',1);
INSERT INTO "sqlite_sequence" VALUES('tasks',1);
INSERT INTO "sqlite_sequence" VALUES('task_notes',1);
INSERT INTO "sqlite_sequence" VALUES('messages',2);
INSERT INTO "sqlite_sequence" VALUES('memories',1);
INSERT INTO memories_text (memories_text) VALUES ('rebuild');
COMMIT;
