BEGIN TRANSACTION;
CREATE TABLE account_days (
	"key" TEXT NOT NULL, 
	day INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE accounts (
	"key" TEXT NOT NULL, 
	job TEXT NOT NULL, 
	day INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY ("key"), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE agreed (
	what TEXT NOT NULL, 
	said TEXT NOT NULL, 
	PRIMARY KEY (what)
);
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
INSERT INTO "alembic_version" VALUES('0012');
CREATE TABLE allocations (
	job TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	node TEXT NOT NULL, 
	state TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	CONSTRAINT allocations_key UNIQUE (job, attempt, node), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE attempts (
	job TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	CONSTRAINT attempts_key UNIQUE (job, number), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "attempts" VALUES('j1',1,'{"job":"j1","number":1,"seats":[{"node":"n1","gpus":[0,1],"gpu_millis":2000,"cpu_millis":0,"memory_bytes":0,"slices":[],"exclusive":false}],"master_port":29500,"placed_at":5.0,"running_at":null,"ended_at":9.0,"cause":"wish","culprit":"","failed_on":null,"warned_at":null,"evidence":"","failure":null,"quote":"","failed_at":"","next_step":null,"exit_code":null,"resume_step":null,"node_mtbf_seconds":2592000.0,"last_step":null,"borrowed_gpu_millis":0,"first_step_at":null,"gave_way_to":null,"idle_since":null,"idle_warned_at":null,"relocated":false,"protected_until":null,"gated":false,"images":[],"nan_step":null,"nan_at":null,"open_receipt":null}',2376122721);
INSERT INTO "attempts" VALUES('j1',2,'{"job":"j1","number":2,"seats":[{"node":"n1","gpus":[0,1],"gpu_millis":2000,"cpu_millis":0,"memory_bytes":0,"slices":[],"exclusive":false}],"master_port":29500,"placed_at":5.0,"running_at":null,"ended_at":10.0,"cause":"user","culprit":"","failed_on":null,"warned_at":null,"evidence":"","failure":null,"quote":"","failed_at":"","next_step":null,"exit_code":null,"resume_step":null,"node_mtbf_seconds":2592000.0,"last_step":null,"borrowed_gpu_millis":0,"first_step_at":null,"gave_way_to":null,"idle_since":null,"idle_warned_at":null,"relocated":false,"protected_until":null,"gated":false,"images":[],"nan_step":null,"nan_at":null,"open_receipt":null}',427594383);
CREATE TABLE audit (
	number INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	"by" TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	link TEXT, 
	seal TEXT, 
	PRIMARY KEY (number)
);
INSERT INTO "audit" VALUES(1,1.0,'ann','{"at":1.0,"by":"ann","token":null,"what":"job.submit","on":"j1","accepted":true,"detail":"first","source":"","kind":"head","code":"","count":1,"number":0,"link":""}',1303894749,'be05593d5987469c69c8bc451ce859a40ca5ef665c82aa8dd42f820e898c3bdb',NULL);
INSERT INTO "audit" VALUES(2,2.5,'ann','{"at":2.5,"by":"ann","token":null,"what":"node.cordon","on":"all suspects","accepted":true,"detail":"","source":"","kind":"head","code":"","count":1,"number":0,"link":""}',2306643411,'cb053093f824e805e35c142cf3181162ec29b0fa8914a922d67e75766857939f',NULL);
INSERT INTO "audit" VALUES(3,3.0,'ann','{"at":3.0,"by":"ann","token":null,"what":"node.check","on":"n1","accepted":true,"detail":"matmul","source":"","kind":"head","code":"","count":1,"number":0,"link":""}',530918664,'339df346738a22aa1322b09d3e093e83f5236ca600b3c15e13c0fb8df31e05f6',NULL);
INSERT INTO "audit" VALUES(4,4.0,'ann','{"at":4.0,"by":"ann","token":null,"what":"queue.set","on":"team","accepted":true,"detail":"~ guard: 2m -> 30s","source":"","kind":"head","code":"","count":1,"number":0,"link":""}',3528761483,'50ba2b6cba7938e31742b7e6d841cc1a6163778cd12aa99fece6e1ac7549aee3',NULL);
CREATE TABLE debts (
	queue TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (queue)
);
CREATE TABLE events (
	number INTEGER NOT NULL, 
	job TEXT, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "events" VALUES(1,NULL,'{"at":3.0,"kind":"ailment","text":"ailment \"ailment\"","job":null,"node":"n1","attempt":null,"number":1}',1258802018);
INSERT INTO "events" VALUES(2,NULL,'{"at":3.0,"kind":"blamed","text":"blamed \"ailment\"","job":null,"node":"n1","attempt":null,"number":2}',1014817725);
INSERT INTO "events" VALUES(3,NULL,'{"at":3.0,"kind":"wish_failed","text":"wish_failed \"ailment\"","job":null,"node":"n1","attempt":null,"number":3}',432840980);
INSERT INTO "events" VALUES(4,NULL,'{"at":3.0,"kind":"drain","text":"drain \"ailment\"","job":null,"node":"n1","attempt":null,"number":4}',2604157680);
CREATE TABLE head (
	id INTEGER NOT NULL CHECK (id = 1), 
	cluster TEXT NOT NULL, 
	term INTEGER NOT NULL, 
	granted INTEGER NOT NULL, 
	newest_wish INTEGER NOT NULL, 
	newest_event INTEGER NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "head" VALUES(1,'c1',1,1,4,4,2574051261);
CREATE TABLE heads (
	name TEXT NOT NULL, 
	url TEXT NOT NULL, 
	beats INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE imported (
	id TEXT NOT NULL, 
	ended_at FLOAT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE jobs (
	id TEXT NOT NULL, 
	submitted INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	final INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES('j1',1,-1,'job-1','QUEUED',0,'{"id":"j1","spec":{"name":"job-1","run":"python train.py","nodes":2,"resources":{"gpu_millis":8000,"gpu_type":"h100","cpu_millis":0,"memory_bytes":256000000000},"any_of":[],"place":{"constraints":[],"topology":{"mode":"prefer","within":"rack"},"exclusive":false,"apart_from":[]},"queue":"default","priority":0,"preemptible":false,"begin":null,"start_by":null,"max_duration_seconds":null,"warn":{"signal":null,"before_seconds":null},"env":[["A","b"],["UNICODE","né ☃"]],"secrets":[],"token":"own","workdir":null,"setup":null,"per":"node","checkpoint":{"path":"./ckpt","interval_seconds":null,"keep":3,"source":"","origin":null},"retry":{"infra":20,"user":0},"disconnect":null,"self_stop_seconds":null,"grace_seconds":30.0,"elastic":null,"after":[],"array_index":null,"array_limit":null,"array_place":0,"image":null,"service":null,"ray":false,"content_number":null},"owner":"ann","submitted":1,"submitted_at":1001.5,"state":"QUEUED","since":1001.25,"attempt":0,"why":null,"reason":"","reason_code":"","exit_code":null,"infra_retries":0,"user_retries":0,"fruitless":0,"claims":0,"fruitless_claims":0,"best_step":-1,"served_seconds":0.0,"waited_seconds":0.0,"ran_seconds":0.0,"started_at":null,"ended_at":null,"pinned_to":null,"failed_on":[],"fault_times":[],"retry_at":null,"array":null}',1597977350);
CREATE TABLE leader (
	id INTEGER NOT NULL CHECK (id = 1), 
	term INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	url TEXT NOT NULL, 
	beats INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "leader" VALUES(1,0,'','',0);
CREATE TABLE nodes (
	id TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "nodes" VALUES('n1','{"id":"n1","address":"127.0.0.1","inventory":{"gpus":[{"index":0,"uuid":"GPU-n1-0","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":1,"uuid":"GPU-n1-1","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":2,"uuid":"GPU-n1-2","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":3,"uuid":"GPU-n1-3","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":4,"uuid":"GPU-n1-4","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":5,"uuid":"GPU-n1-5","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":6,"uuid":"GPU-n1-6","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":7,"uuid":"GPU-n1-7","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false}],"cpu_millis":64000,"memory_bytes":1000000000000,"ports":[29500,29501,29502,29503,29504,29505,29506,29507,29508,29509,29510,29511,29512,29513,29514,29515],"shared":[],"labels":[],"gpu_shares":false,"containment":"cgroup","private_root":true,"shares_disk":false,"taken_cpu_millis":0,"taken_memory_bytes":0,"closed":"","checks":false,"shared_account":"","refused_users":[]},"boot":"","liveness":"alive","since":0.0,"why":"beats","cordoned":true,"draining":false,"failed_at":[],"set_labels":[],"said_dead":"","signals_taken":0,"parts_taken":[],"ailments":[{"kind":"xid","code":79,"gpu":3,"device":"","text":"XID 79 on GPU 3 ☃","since":1.0,"last":2.0,"count":1,"times":[],"outbreaks":[],"users":[],"attempts":[],"noticed_at":0.0,"recovery":"","settles_at":null,"struck":0.0,"mended_at":null,"excused":false,"remedy":"reboot","bar":"drain","uuid":"","confirmed":true},{"kind":"blame","code":null,"gpu":null,"device":"","text":"3 of 4","since":1.0,"last":2.0,"count":1,"times":[],"outbreaks":[],"users":[],"attempts":[],"noticed_at":0.0,"recovery":"","settles_at":null,"struck":0.0,"mended_at":null,"excused":false,"remedy":"deep-test","bar":"avoid","uuid":"","confirmed":true}],"cordoned_by":"health","barred_at":7.0,"suspect":false,"record":{"since":0.0,"users":[]},"checkups":[],"measures":[],"checked_at":null,"checked_for":0,"lost_jobs":[]}',1585257641);
INSERT INTO "nodes" VALUES('n2','{"id":"n2","address":"127.0.0.1","inventory":{"gpus":[{"index":0,"uuid":"GPU-n2-0","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":1,"uuid":"GPU-n2-1","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":2,"uuid":"GPU-n2-2","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":3,"uuid":"GPU-n2-3","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":4,"uuid":"GPU-n2-4","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":5,"uuid":"GPU-n2-5","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":6,"uuid":"GPU-n2-6","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":7,"uuid":"GPU-n2-7","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false}],"cpu_millis":64000,"memory_bytes":1000000000000,"ports":[29500,29501,29502,29503,29504,29505,29506,29507,29508,29509,29510,29511,29512,29513,29514,29515],"shared":[],"labels":[],"gpu_shares":false,"containment":"cgroup","private_root":true,"shares_disk":false,"taken_cpu_millis":0,"taken_memory_bytes":0,"closed":"","checks":false,"shared_account":"","refused_users":[]},"boot":"","liveness":"alive","since":0.0,"why":"beats","cordoned":false,"draining":false,"failed_at":[],"set_labels":[],"said_dead":"","signals_taken":0,"parts_taken":[],"ailments":[],"cordoned_by":"","barred_at":null,"suspect":false,"record":{"since":0.0,"users":[]},"checkups":[],"measures":[],"checked_at":null,"checked_for":0,"lost_jobs":[]}',2573136300);
CREATE TABLE queues (
	id INTEGER NOT NULL CHECK (id = 1), 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "queues" VALUES(1,'{"queues":[{"name":"default","parent":null,"nominal":[],"weight":1.0,"borrow_limit_millis":null,"lend_limit_millis":null,"most_per_user_millis":null,"longest_seconds":null,"lowest_priority":null,"highest_priority":null,"policy":"default","preempt":"saving","budget":null,"allow":null,"idle":null,"visibility":null,"operators":[]},{"name":"team","parent":null,"nominal":[],"weight":1.0,"borrow_limit_millis":null,"lend_limit_millis":null,"most_per_user_millis":null,"longest_seconds":null,"lowest_priority":null,"highest_priority":null,"policy":"default","preempt":"saving","budget":null,"allow":null,"idle":null,"visibility":null,"operators":[]}],"half_life_seconds":604800.0,"guard_seconds":60.0,"relocation":null,"rack_patience_seconds":300.0,"pod_patience_seconds":600.0,"currency":"USD"}',651489741);
CREATE TABLE receipts (
	number INTEGER NOT NULL, 
	job TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (number), 
	CONSTRAINT receipts_key UNIQUE (job, attempt, kind), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "receipts" VALUES(1,'j1',1,'suspension','{"job":"j1","attempt":1,"kind":"suspension","cause":"wish","culprit":"node n1","evidence":"silent for 10 s","steps_lost":12,"gpu_seconds_lost":81.5,"seen_at":9.0,"resumed_from_step":null,"seconds_lost":null,"others":[],"restart_gpu_seconds":0.0}',2363937130);
INSERT INTO "receipts" VALUES(2,'j1',2,'failure','{"job":"j1","attempt":2,"kind":"failure","cause":"infra","culprit":"node n1","evidence":"silent for 10 s","steps_lost":12,"gpu_seconds_lost":81.5,"seen_at":9.0,"resumed_from_step":null,"seconds_lost":null,"others":[],"restart_gpu_seconds":0.0}',953561754);
CREATE TABLE reservations (
	job TEXT NOT NULL, 
	open INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (job), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE saves (
	job TEXT NOT NULL, 
	step INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	CONSTRAINT saves_key UNIQUE (job, step, attempt), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE secrets (
	name TEXT NOT NULL, 
	sealed BLOB NOT NULL, 
	"by" TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	everybody INTEGER DEFAULT 0 NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE specs (
	submitted INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	owner TEXT NOT NULL, 
	bytes INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	CONSTRAINT specs_key UNIQUE (submitted, number)
);
CREATE TABLE spending (
	queue TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (queue)
);
CREATE TABLE tokens (
	sha256 TEXT NOT NULL, 
	id TEXT NOT NULL, 
	user TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (sha256), 
	CONSTRAINT tokens_id UNIQUE (id)
);
CREATE TABLE told (
	job TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (job), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE uploads (
	sha256 TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	bytes INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (sha256)
);
CREATE TABLE usage (
	queue TEXT NOT NULL, 
	user TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	CONSTRAINT usage_key UNIQUE (queue, user)
);
CREATE TABLE users (
	name TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE wishes (
	sequence INTEGER NOT NULL, 
	"by" TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	"key" TEXT, 
	kind TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (sequence)
);
INSERT INTO "wishes" VALUES(1,'ann',1.0,'first','submission','{"folds":[{"spec":{"name":"first","run":"python train.py","nodes":2,"resources":{"gpu_millis":8000,"gpu_type":"h100","cpu_millis":0,"memory_bytes":256000000000},"any_of":[],"place":{"constraints":[],"topology":{"mode":"prefer","within":"rack"},"exclusive":false,"apart_from":[]},"queue":"default","priority":0,"preemptible":false,"begin":null,"start_by":null,"max_duration_seconds":null,"warn":{"signal":null,"before_seconds":null},"env":[["A","b"],["UNICODE","né ☃"]],"secrets":[],"token":"own","workdir":null,"setup":null,"per":"node","checkpoint":{"path":"./ckpt","interval_seconds":null,"keep":3,"source":"","origin":null},"retry":{"infra":20,"user":0},"disconnect":null,"self_stop_seconds":null,"grace_seconds":30.0,"elastic":null,"after":[],"array_index":null,"array_limit":null,"array_place":0,"image":null,"service":null,"ray":false,"content_number":null},"indices":[]}],"key":"first","held":false}',544410194);
INSERT INTO "wishes" VALUES(2,'ann',2.5,NULL,'bar_suspects','{}',3329296429);
INSERT INTO "wishes" VALUES(3,'ann',3.0,NULL,'check_nodes','{"nodes":["n1"],"kinds":["matmul"],"paths":[],"seconds":5.0,"patience_seconds":90.0,"secret":""}',2065212507);
INSERT INTO "wishes" VALUES(4,'ann',4.0,NULL,'set_queues','{"queues":[{"name":"team","parent":null,"nominal":[],"weight":1.0,"borrow_limit_millis":null,"lend_limit_millis":null,"most_per_user_millis":null,"longest_seconds":null,"lowest_priority":null,"highest_priority":null,"policy":"default","preempt":"saving","budget":null,"allow":null,"idle":null,"visibility":null,"operators":[]}],"whole":false,"half_life_seconds":null,"guard_seconds":30.0,"currency":null,"relocation":null,"rack_patience_seconds":5.0,"pod_patience_seconds":6.0,"changes":["~ guard: 2m -> 30s"],"removed":[]}',3893083271);
CREATE UNIQUE INDEX wishes_key ON wishes ("by", "key") WHERE key IS NOT NULL;
CREATE INDEX jobs_age ON jobs (submitted, place, id);
CREATE INDEX jobs_unfinished ON jobs (submitted, place, id) WHERE final = 0;
CREATE INDEX jobs_name ON jobs (name, submitted, place, id);
CREATE INDEX specs_owner ON specs (owner, bytes);
CREATE INDEX uploads_owner ON uploads (owner, bytes);
CREATE INDEX events_job ON events (job, number) WHERE job IS NOT NULL;
CREATE INDEX account_days_day ON account_days (day);
CREATE INDEX imported_age ON imported (ended_at, id);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_by ON audit ("by", number);
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE number = NEW.number) BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE INDEX allocations_open ON allocations (job) WHERE state <> 'RELEASED';
CREATE INDEX accounts_job ON accounts (job);
CREATE INDEX accounts_day ON accounts (day);
CREATE INDEX reservations_open ON reservations (job) WHERE open = 1;
CREATE INDEX told_at ON told (at, job);
COMMIT;
