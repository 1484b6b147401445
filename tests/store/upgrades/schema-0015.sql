BEGIN TRANSACTION;
CREATE TABLE account_days (
	"key" TEXT NOT NULL, 
	day INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "account_days" VALUES('[3,"team","ann","h100"]',3,'{"day":3,"queue":"team","user":"ann","gpu_type":"h100","amounts":[80.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.2,0.0,0.0,0.0,0.0,0.0],"job":null,"attempt":0,"name":""}',3359098333);
INSERT INTO "account_days" VALUES('[4,"team","ann","h100"]',4,'{"day":4,"queue":"team","user":"ann","gpu_type":"h100","amounts":[40.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.1,0.0,0.0,0.0,0.0,0.0],"job":null,"attempt":0,"name":""}',3166550097);
CREATE TABLE accounts (
	"key" TEXT NOT NULL, 
	job TEXT NOT NULL, 
	day INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY ("key"), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "accounts" VALUES('["j1",1,3,"h100"]','j1',3,'{"day":3,"queue":"team","user":"ann","gpu_type":"h100","amounts":[40.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.1,0.0,0.0,0.0,0.0,0.0],"job":"j1","attempt":1,"name":"tiny-gpt"}',652431229);
INSERT INTO "accounts" VALUES('["j1",2,3,"h100"]','j1',3,'{"day":3,"queue":"team","user":"ann","gpu_type":"h100","amounts":[40.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.1,0.0,0.0,0.0,0.0,0.0],"job":"j1","attempt":2,"name":"tiny-gpt"}',2303328951);
INSERT INTO "accounts" VALUES('["j2",1,4,"h100"]','j2',4,'{"day":4,"queue":"team","user":"ann","gpu_type":"h100","amounts":[40.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.1,0.0,0.0,0.0,0.0,0.0],"job":"j2","attempt":1,"name":"tiny-gpt"}',2945063383);
CREATE TABLE agreed (
	what TEXT NOT NULL, 
	said TEXT NOT NULL, 
	PRIMARY KEY (what)
);
INSERT INTO "agreed" VALUES('key','of the first');
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
INSERT INTO "alembic_version" VALUES('0015');
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
INSERT INTO "allocations" VALUES('j1',2,'n1','HELD','{"job":"j1","attempt":2,"seat":{"node":"n1","gpus":[0],"gpu_millis":1000,"cpu_millis":0,"memory_bytes":0,"slices":[],"exclusive":false},"state":"HELD","since":0.0,"port":29500,"placed_at":0.0,"charged":false,"replica_port":null}',150017083);
INSERT INTO "allocations" VALUES('j2',1,'n2','RELEASED','{"job":"j2","attempt":1,"seat":{"node":"n2","gpus":[0],"gpu_millis":1000,"cpu_millis":0,"memory_bytes":0,"slices":[],"exclusive":false},"state":"RELEASED","since":0.0,"port":29500,"placed_at":0.0,"charged":false,"replica_port":null}',3988905411);
CREATE TABLE attempts (
	job TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	CONSTRAINT attempts_key UNIQUE (job, number), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "attempts" VALUES('j1',1,'{"job":"j1","number":1,"seats":[{"node":"n1","gpus":[0,1],"gpu_millis":2000,"cpu_millis":0,"memory_bytes":0,"slices":[],"exclusive":false}],"master_port":29500,"placed_at":5.0,"running_at":null,"ended_at":null,"cause":"none","culprit":"","failed_on":null,"warned_at":null,"evidence":"","failure":null,"quote":"","failed_at":"","next_step":null,"exit_code":null,"resume_step":null,"node_mtbf_seconds":2592000.0,"last_step":null,"borrowed_gpu_millis":0,"first_step_at":null,"gave_way_to":null,"idle_since":null,"idle_warned_at":null,"relocated":false,"protected_until":null,"gated":false,"images":[],"nan_step":null,"nan_at":null,"open_receipt":null,"replica_port":null}',117227666);
INSERT INTO "attempts" VALUES('j1',2,'{"job":"j1","number":2,"seats":[{"node":"n1","gpus":[0,1],"gpu_millis":2000,"cpu_millis":0,"memory_bytes":0,"slices":[],"exclusive":false}],"master_port":29500,"placed_at":5.0,"running_at":null,"ended_at":null,"cause":"none","culprit":"","failed_on":null,"warned_at":null,"evidence":"","failure":null,"quote":"","failed_at":"","next_step":null,"exit_code":null,"resume_step":null,"node_mtbf_seconds":2592000.0,"last_step":null,"borrowed_gpu_millis":0,"first_step_at":null,"gave_way_to":null,"idle_since":null,"idle_warned_at":null,"relocated":false,"protected_until":null,"gated":false,"images":[],"nan_step":null,"nan_at":null,"open_receipt":null,"replica_port":null}',3412947850);
INSERT INTO "attempts" VALUES('j2',1,'{"job":"j2","number":1,"seats":[{"node":"n1","gpus":[0,1],"gpu_millis":2000,"cpu_millis":0,"memory_bytes":0,"slices":[],"exclusive":false}],"master_port":29500,"placed_at":5.0,"running_at":null,"ended_at":null,"cause":"none","culprit":"","failed_on":null,"warned_at":null,"evidence":"","failure":null,"quote":"","failed_at":"","next_step":null,"exit_code":null,"resume_step":null,"node_mtbf_seconds":2592000.0,"last_step":null,"borrowed_gpu_millis":0,"first_step_at":null,"gave_way_to":null,"idle_since":null,"idle_warned_at":null,"relocated":false,"protected_until":null,"gated":false,"images":[],"nan_step":null,"nan_at":null,"open_receipt":null,"replica_port":null}',2908767450);
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
INSERT INTO "audit" VALUES(2,2.0,'ann','{"at":2.0,"by":"ann","token":null,"what":"job.cancel","on":"j2","accepted":true,"detail":"","source":"","kind":"head","code":"","count":1,"number":0,"link":""}',4096550563,'5f3bedc9e3ca259c66f1c548dc0063406d52a03ae599e8f4c1965a14ab2ac0d5',NULL);
INSERT INTO "audit" VALUES(3,3.0,'ann','{"at":3.0,"by":"ann","token":null,"what":"node.cordon","on":"n1","accepted":true,"detail":"","source":"","kind":"head","code":"","count":1,"number":0,"link":""}',1470863142,'50895a5ba9d7ed24cd1f441c24c07e043421bb6c63c5489ac1a0a759ca6b775d',NULL);
INSERT INTO "audit" VALUES(4,5.0,'(head)','{"at":5.0,"by":"(head)","token":null,"what":"user.add","on":"admin","accepted":true,"detail":"","source":"","kind":"","code":"","count":1,"number":0,"link":""}',37039269,'abb2799294ba8cc254699d5aca6a127baaca10cdc0367fe0af39905e24b27f4e',NULL);
INSERT INTO "audit" VALUES(5,5.0,'(head)','{"at":5.0,"by":"(head)","token":null,"what":"user.add","on":"admin","accepted":true,"detail":"","source":"","kind":"","code":"","count":1,"number":0,"link":""}',37039269,'2995fdb3f85c57690e48c4b33bcd1d173eca3979e2d937352c40405a92a86e30',NULL);
INSERT INTO "audit" VALUES(6,5.0,'(head)','{"at":5.0,"by":"(head)","token":null,"what":"user.add","on":"admin","accepted":true,"detail":"","source":"","kind":"","code":"","count":1,"number":0,"link":""}',37039269,'1c4623aa77e5b6bf00269866f4cf71eb52a8b4498a6753c7fc9217a5466053ff',NULL);
INSERT INTO "audit" VALUES(7,5.0,'(head)','{"at":5.0,"by":"(head)","token":null,"what":"user.add","on":"admin","accepted":true,"detail":"","source":"","kind":"","code":"","count":1,"number":0,"link":""}',37039269,'afafc00b8d6ece39c2bd8d7de16230e0b37a6b79e82322e31c413e2eaf1682d3',NULL);
INSERT INTO "audit" VALUES(8,5.0,'(head)','{"at":5.0,"by":"(head)","token":null,"what":"user.add","on":"admin","accepted":true,"detail":"","source":"","kind":"","code":"","count":1,"number":0,"link":""}',37039269,'9f9d19e78047aa46fcae3de949de7df23eb565a3410acb12dca6dcf1d73b8113',NULL);
INSERT INTO "audit" VALUES(9,5.0,'(head)','{"at":5.0,"by":"(head)","token":null,"what":"user.add","on":"admin","accepted":true,"detail":"","source":"","kind":"","code":"","count":1,"number":0,"link":""}',37039269,'e447a0554bf4f860756fa7c965cc36e44749788313b17c802fcc493ed2136d14',NULL);
INSERT INTO "audit" VALUES(10,6.0,'(head)','{"at":6.0,"by":"(head)","token":null,"what":"history.import","on":"sacct","accepted":true,"detail":"","source":"","kind":"","code":"","count":1,"number":0,"link":""}',1972080218,'757ca9f7dbb688381fe67d7d1a058d976af46d44b76013516eb85b0be98100b3',NULL);
CREATE TABLE batches (
	id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	open INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "batches" VALUES('b1','ann',1.0,1,'{"id":"b1","owner":"ann","name":"batch-a","input_file":"f1","endpoint":"/v1/completions","window":"24h","created_at":1.0,"deadline":86401.0,"metadata":[["k","v"]],"queue":null,"concurrency":null,"checkpoint":null,"status":"validating","service":"","model":"","job":null,"counts":{"total":0,"completed":0,"failed":0,"expired":0,"prompt_tokens":0,"cached_tokens":0,"output_tokens":0},"faults":[],"output_file":null,"error_file":null,"in_progress_at":null,"finalizing_at":null,"cancelling_at":null,"ended_at":null}',438405871);
CREATE TABLE debts (
	queue TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (queue)
);
INSERT INTO "debts" VALUES('team','{"queue":"team","at":3.0,"gpus":-0.3333333333333333,"rate":2.0}',2595477285);
CREATE TABLE events (
	number INTEGER NOT NULL, 
	job TEXT, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "events" VALUES(1,'j1','{"at":3.0,"kind":"submitted","text":"began","job":"j1","node":null,"attempt":null,"number":1}',85208824);
INSERT INTO "events" VALUES(2,NULL,'{"at":3.0,"kind":"submitted","text":"n1 is cordoned","job":null,"node":null,"attempt":null,"number":2}',3672192947);
CREATE TABLE files (
	id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	bytes INTEGER NOT NULL, 
	expires_at FLOAT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "files" VALUES('f1','ann',100,11.0,'{"id":"f1","owner":"ann","name":"é ☃.jsonl","purpose":"batch","size_bytes":100,"created_at":1.0,"expires_at":11.0}',4151234884);
CREATE TABLE gateway_counts (
	process TEXT NOT NULL, 
	service TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (process, service)
);
INSERT INTO "gateway_counts" VALUES('p1','chat','{"process":"p1","service":"chat","queue":"team","at":4.5,"users":{"ann":[3,100,40,7],"é ☃":[0,0,0,0]},"days":[[3,90],[4,107]]}',232788799);
INSERT INTO "gateway_counts" VALUES('p2','chat','{"process":"p2","service":"chat","queue":"team","at":4.5,"users":{"ann":[3,100,40,7],"é ☃":[0,0,0,0]},"days":[[3,90],[4,107]]}',256423943);
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
INSERT INTO "head" VALUES(1,'c1',1,2,3,2,3564440108);
CREATE TABLE heads (
	name TEXT NOT NULL, 
	url TEXT NOT NULL, 
	beats INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "heads" VALUES('a','http://127.0.0.1:1',1);
CREATE TABLE imported (
	id TEXT NOT NULL, 
	ended_at FLOAT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "imported" VALUES('sacct:1',50.0,'{"id":"sacct:1","name":"train-1","user":"ann","queue":"gpu","shape":{"nodes":2,"resources":{"gpu_millis":4000,"gpu_type":null,"cpu_millis":0,"memory_bytes":0}},"submitted_at":35.0,"started_at":40.0,"ended_at":50.0,"seconds":10.0,"state":"COMPLETED","priority":0,"limit_seconds":3600.0}',3706167368);
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
INSERT INTO "jobs" VALUES('j1',1,-1,'job-1','RUNNING',0,'{"id":"j1","spec":{"name":"job-1","run":"python train.py","nodes":2,"resources":{"gpu_millis":8000,"gpu_type":"h100","cpu_millis":0,"memory_bytes":256000000000},"any_of":[],"place":{"constraints":[],"topology":{"mode":"prefer","within":"rack"},"exclusive":false,"apart_from":[]},"queue":"default","priority":0,"preemptible":false,"begin":null,"start_by":null,"max_duration_seconds":null,"warn":{"signal":null,"before_seconds":null},"env":[["A","b"],["UNICODE","né ☃"]],"secrets":[],"token":"own","workdir":null,"setup":null,"per":"node","checkpoint":{"path":"./ckpt","interval_seconds":null,"keep":3,"source":"","origin":null},"retry":{"infra":20,"user":0},"disconnect":null,"self_stop_seconds":null,"grace_seconds":30.0,"elastic":null,"after":[],"array_index":null,"array_limit":null,"array_place":0,"image":null,"replica":null,"ray":false,"content_number":null},"owner":"ann","submitted":1,"submitted_at":1001.5,"state":"RUNNING","since":1001.25,"attempt":2,"why":null,"reason":"","reason_code":"","exit_code":null,"infra_retries":0,"user_retries":0,"fruitless":0,"claims":0,"fruitless_claims":0,"best_step":-1,"served_seconds":0.0,"waited_seconds":0.0,"ran_seconds":0.0,"started_at":null,"ended_at":null,"pinned_to":null,"failed_on":[],"fault_times":[],"retry_at":null,"array":null}',481195758);
INSERT INTO "jobs" VALUES('j2',2,-1,'job-2','DONE',1,'{"id":"j2","spec":{"name":"job-2","run":"python train.py","nodes":2,"resources":{"gpu_millis":8000,"gpu_type":"h100","cpu_millis":0,"memory_bytes":256000000000},"any_of":[],"place":{"constraints":[],"topology":{"mode":"prefer","within":"rack"},"exclusive":false,"apart_from":[]},"queue":"default","priority":0,"preemptible":false,"begin":null,"start_by":null,"max_duration_seconds":null,"warn":{"signal":null,"before_seconds":null},"env":[["A","b"],["UNICODE","né ☃"]],"secrets":[],"token":"own","workdir":null,"setup":null,"per":"node","checkpoint":{"path":"./ckpt","interval_seconds":null,"keep":3,"source":"","origin":null},"retry":{"infra":20,"user":0},"disconnect":null,"self_stop_seconds":null,"grace_seconds":30.0,"elastic":null,"after":[],"array_index":null,"array_limit":null,"array_place":0,"image":null,"replica":null,"ray":false,"content_number":null},"owner":"ann","submitted":2,"submitted_at":1002.5,"state":"DONE","since":1001.25,"attempt":0,"why":null,"reason":"","reason_code":"","exit_code":null,"infra_retries":0,"user_retries":0,"fruitless":0,"claims":0,"fruitless_claims":0,"best_step":-1,"served_seconds":0.0,"waited_seconds":0.0,"ran_seconds":0.0,"started_at":null,"ended_at":null,"pinned_to":null,"failed_on":[],"fault_times":[],"retry_at":null,"array":null}',1732127392);
CREATE TABLE leader (
	id INTEGER NOT NULL CHECK (id = 1), 
	term INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	url TEXT NOT NULL, 
	beats INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "leader" VALUES(1,1,'a','http://127.0.0.1:1',1);
CREATE TABLE nodes (
	id TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "nodes" VALUES('n1','{"id":"n1","address":"127.0.0.1","inventory":{"gpus":[{"index":0,"uuid":"GPU-n1-0","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":1,"uuid":"GPU-n1-1","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":2,"uuid":"GPU-n1-2","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":3,"uuid":"GPU-n1-3","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":4,"uuid":"GPU-n1-4","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":5,"uuid":"GPU-n1-5","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":6,"uuid":"GPU-n1-6","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false},{"index":7,"uuid":"GPU-n1-7","type":"h100","memory_bytes":80000000000,"pretend":false,"slices":[],"numa":0,"taken":false}],"cpu_millis":64000,"memory_bytes":1000000000000,"ports":[29500,29501,29502,29503,29504,29505,29506,29507,29508,29509,29510,29511,29512,29513,29514,29515],"shared":[],"labels":[],"gpu_shares":false,"containment":"cgroup","private_root":true,"shares_disk":false,"taken_cpu_millis":0,"taken_memory_bytes":0,"closed":"","checks":false,"shared_account":"","refused_users":[]},"boot":"","liveness":"alive","since":0.0,"why":"heartbeats arrive","cordoned":false,"draining":false,"failed_at":[],"set_labels":[],"said_dead":"","signals_taken":0,"parts_taken":[],"conditions":[],"cordoned_by":"","health_cordoned_at":null,"suspect":false,"record":{"since":0.0,"users":[]},"checkups":[],"measures":[],"checked_at":null,"checked_for":0,"lost_jobs":[]}',4117582418);
INSERT INTO "nodes" VALUES('n2','{"id":"n2","address":"127.0.0.1","inventory":{"gpus":[],"cpu_millis":64000,"memory_bytes":1000000000000,"ports":[29500,29501,29502,29503,29504,29505,29506,29507,29508,29509,29510,29511,29512,29513,29514,29515],"shared":[],"labels":[],"gpu_shares":false,"containment":"cgroup","private_root":true,"shares_disk":false,"taken_cpu_millis":0,"taken_memory_bytes":0,"closed":"","checks":false,"shared_account":"","refused_users":[]},"boot":"","liveness":"alive","since":0.0,"why":"heartbeats arrive","cordoned":false,"draining":false,"failed_at":[],"set_labels":[],"said_dead":"","signals_taken":0,"parts_taken":[],"conditions":[],"cordoned_by":"","health_cordoned_at":null,"suspect":false,"record":{"since":0.0,"users":[]},"checkups":[],"measures":[],"checked_at":null,"checked_for":0,"lost_jobs":[]}',859381866);
CREATE TABLE queues (
	id INTEGER NOT NULL CHECK (id = 1), 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "queues" VALUES(1,'{"queues":[{"name":"default","parent":null,"nominal":[],"weight":1.0,"borrow_limit_millis":null,"lend_limit_millis":null,"most_per_user_millis":null,"longest_seconds":null,"lowest_priority":null,"highest_priority":null,"policy":"default","preempt":"saving","budget":null,"allow":null,"idle":null,"visibility":null,"operators":[]},{"name":"team","parent":null,"nominal":[["h100",8000]],"weight":1.0,"borrow_limit_millis":null,"lend_limit_millis":null,"most_per_user_millis":null,"longest_seconds":null,"lowest_priority":null,"highest_priority":null,"policy":"default","preempt":"saving","budget":{"gpu_hours":null,"money":900.5,"rates":[["any",1.25],["h100",2.5]],"period_seconds":86400.0,"until":null,"demote_to":null,"since":0.0},"allow":null,"idle":null,"visibility":null,"operators":[]},{"name":"below","parent":"team","nominal":[],"weight":0.5,"borrow_limit_millis":null,"lend_limit_millis":0,"most_per_user_millis":null,"longest_seconds":null,"lowest_priority":null,"highest_priority":null,"policy":"default","preempt":"saving","budget":null,"allow":null,"idle":null,"visibility":null,"operators":[]}],"half_life_seconds":604800.0,"min_runtime_seconds":60.0,"relocation":null,"rack_locality_delay_seconds":0.0,"pod_locality_delay_seconds":0.0,"currency":"USD"}',3390241354);
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
INSERT INTO "receipts" VALUES(1,'j1',1,'failure','{"job":"j1","attempt":1,"kind":"failure","cause":"infra","culprit":"node n1","evidence":"silent for 10 s","steps_lost":12,"gpu_seconds_lost":81.5,"seen_at":9.0,"resumed_from_step":null,"seconds_lost":null,"others":[],"restart_gpu_seconds":0.0,"taken":[],"needed_gpu_millis":0}',1105409156);
CREATE TABLE reservations (
	job TEXT NOT NULL, 
	open INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (job), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "reservations" VALUES('j1',1,'{"job":"j1","shape":{"nodes":1,"resources":{"gpu_millis":1000,"gpu_type":null,"cpu_millis":0,"memory_bytes":0}},"seats":[{"node":"n1","gpus":[0],"gpu_millis":1000,"cpu_millis":0,"memory_bytes":0,"slices":[],"exclusive":false}],"victims":[{"job":"j9","attempt":1,"due_at":5.0,"why":"reclaim","gpu_millis":0,"gone_at":null,"steps_lost":null,"gpu_seconds_lost":0.0,"loss":"","to":[],"shape":null}],"since":4.0,"ended":"","latest_start":null,"after":[],"moved_for":null}',3883111955);
INSERT INTO "reservations" VALUES('j2',0,'{"job":"j2","shape":{"nodes":1,"resources":{"gpu_millis":1000,"gpu_type":null,"cpu_millis":0,"memory_bytes":0}},"seats":[{"node":"n1","gpus":[0],"gpu_millis":1000,"cpu_millis":0,"memory_bytes":0,"slices":[],"exclusive":false}],"victims":[{"job":"j9","attempt":1,"due_at":5.0,"why":"reclaim","gpu_millis":0,"gone_at":null,"steps_lost":null,"gpu_seconds_lost":0.0,"loss":"","to":[],"shape":null}],"since":4.0,"ended":"placed","latest_start":null,"after":[],"moved_for":null}',596339297);
CREATE TABLE saves (
	job TEXT NOT NULL, 
	step INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	CONSTRAINT saves_key UNIQUE (job, step, attempt), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "saves" VALUES('j1',10,1,'{"job":"j1","attempt":1,"step":10,"path":"/shared/j1/10","manifest_sha256":"abababababababababababababababababababababababababababababababab","size_bytes":200000000,"seconds":1.5,"stall_seconds":0.01,"at":7.0,"quarantined":""}',182379403);
INSERT INTO "saves" VALUES('j1',20,2,'{"job":"j1","attempt":2,"step":20,"path":"/shared/j1/20","manifest_sha256":"abababababababababababababababababababababababababababababababab","size_bytes":200000000,"seconds":1.5,"stall_seconds":0.01,"at":7.0,"quarantined":""}',943418770);
INSERT INTO "saves" VALUES('j1',30,2,'{"job":"j1","attempt":2,"step":30,"path":"/shared/j1/30","manifest_sha256":"abababababababababababababababababababababababababababababababab","size_bytes":200000000,"seconds":1.5,"stall_seconds":0.01,"at":7.0,"quarantined":"torn"}',3677624751);
CREATE TABLE secrets (
	name TEXT NOT NULL, 
	sealed BLOB NOT NULL, 
	"by" TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	everybody INTEGER DEFAULT 0 NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "secrets" VALUES('HF_TOKEN',X'7365616C6564','ann',4.0,0);
CREATE TABLE services (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	open INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "services" VALUES('j7','chat',1,'{"id":"j7","name":"chat","owner":"ann","created_at":1.25,"revisions":[{"number":1,"spec":{"name":"chat","replica":{"name":"chat","run":"python train.py","nodes":2,"resources":{"gpu_millis":8000,"gpu_type":"h100","cpu_millis":0,"memory_bytes":256000000000},"any_of":[],"place":{"constraints":[],"topology":{"mode":"prefer","within":"rack"},"exclusive":false,"apart_from":[]},"queue":"default","priority":0,"preemptible":false,"begin":null,"start_by":null,"max_duration_seconds":null,"warn":{"signal":null,"before_seconds":null},"env":[["A","b"],["UNICODE","né ☃"]],"secrets":[],"token":"own","workdir":null,"setup":null,"per":"node","checkpoint":{"path":"./ckpt","interval_seconds":null,"keep":3,"source":"","origin":null},"retry":{"infra":20,"user":0},"disconnect":null,"self_stop_seconds":null,"grace_seconds":30.0,"elastic":null,"after":[],"array_index":null,"array_limit":null,"array_place":0,"image":null,"replica":null,"ray":false,"content_number":null},"models":["chat","né ☃"],"min_replicas":1,"max_replicas":1,"probe":"/health","engine":"","scale":{"queue":null,"rps":null,"tokens":null,"ttft_p90_seconds":null,"itl_p90_seconds":null,"back_within_seconds":null},"canary":{"share":0.05,"seconds":600.0},"body_bytes":10000000,"deadline_seconds":60.0,"drain_seconds":60.0,"continue_by":"none"},"by":"ann","at":1.5,"served_at":null}],"current":1,"key_seed":"5eed","state":"ACTIVE","trial":null,"trial_since":null,"passed":false,"turned_back":null,"turned_back_reason":"","wanted":1,"next_number":2,"replicas":[{"number":1,"job":"j7_1","revision":1,"ready_at":2.5,"draining_at":null,"attempt":0,"address":"","ready_seconds":0.0,"failing_since":null,"finished_attempt":0,"leaving_since":null,"reason":""}],"fruitless":0,"retry_at":null,"trial_fruitless":0,"trial_retry_at":null,"last_end":"","gave_way_at":null,"reason":"","stopped_at":null}',2054368210);
INSERT INTO "services" VALUES('j9','old',0,'{"id":"j9","name":"old","owner":"ann","created_at":1.25,"revisions":[{"number":1,"spec":{"name":"old","replica":{"name":"old","run":"python train.py","nodes":2,"resources":{"gpu_millis":8000,"gpu_type":"h100","cpu_millis":0,"memory_bytes":256000000000},"any_of":[],"place":{"constraints":[],"topology":{"mode":"prefer","within":"rack"},"exclusive":false,"apart_from":[]},"queue":"default","priority":0,"preemptible":false,"begin":null,"start_by":null,"max_duration_seconds":null,"warn":{"signal":null,"before_seconds":null},"env":[["A","b"],["UNICODE","né ☃"]],"secrets":[],"token":"own","workdir":null,"setup":null,"per":"node","checkpoint":{"path":"./ckpt","interval_seconds":null,"keep":3,"source":"","origin":null},"retry":{"infra":20,"user":0},"disconnect":null,"self_stop_seconds":null,"grace_seconds":30.0,"elastic":null,"after":[],"array_index":null,"array_limit":null,"array_place":0,"image":null,"replica":null,"ray":false,"content_number":null},"models":["old","né ☃"],"min_replicas":1,"max_replicas":1,"probe":"/health","engine":"","scale":{"queue":null,"rps":null,"tokens":null,"ttft_p90_seconds":null,"itl_p90_seconds":null,"back_within_seconds":null},"canary":{"share":0.05,"seconds":600.0},"body_bytes":10000000,"deadline_seconds":60.0,"drain_seconds":60.0,"continue_by":"none"},"by":"ann","at":1.5,"served_at":null}],"current":1,"key_seed":"5eed","state":"STOPPED","trial":null,"trial_since":null,"passed":false,"turned_back":null,"turned_back_reason":"","wanted":1,"next_number":2,"replicas":[{"number":1,"job":"j9_1","revision":1,"ready_at":2.5,"draining_at":null,"attempt":0,"address":"","ready_seconds":0.0,"failing_since":null,"finished_attempt":0,"leaving_since":null,"reason":""}],"fruitless":0,"retry_at":null,"trial_fruitless":0,"trial_retry_at":null,"last_end":"","gave_way_at":null,"reason":"","stopped_at":null}',194673518);
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
INSERT INTO "spending" VALUES('team','{"queue":"team","since":3.0,"gpu_seconds":0.3333333333333333,"money":0.1,"demoted":false}',2202118337);
CREATE TABLE tokens (
	sha256 TEXT NOT NULL, 
	id TEXT NOT NULL, 
	user TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (sha256), 
	CONSTRAINT tokens_id UNIQUE (id)
);
INSERT INTO "tokens" VALUES('abababababababababababababababababababababababababababababababab','tabababababab','admin','{"id":"tabababababab","sha256":"abababababababababababababababababababababababababababababababab","user":"admin","role":"admin","created_at":5.0,"node":null,"expires_at":null,"revoked_at":null,"used_at":null,"uses_left":null,"kind":"bearer","idle_seconds":null,"origin":null,"page_sha256":null}',1841898649);
INSERT INTO "tokens" VALUES('cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd','tcdcdcdcdcdcd','vera','{"id":"tcdcdcdcdcdcd","sha256":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","user":"vera","role":"viewer","created_at":5.0,"node":null,"expires_at":null,"revoked_at":6.0,"used_at":null,"uses_left":null,"kind":"bearer","idle_seconds":null,"origin":null,"page_sha256":null}',1734185987);
INSERT INTO "tokens" VALUES('efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef','tefefefefefef','n1','{"id":"tefefefefefef","sha256":"efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef","user":"n1","role":"node","created_at":5.0,"node":"n1","expires_at":null,"revoked_at":null,"used_at":null,"uses_left":null,"kind":"bearer","idle_seconds":null,"origin":null,"page_sha256":null}',2245993422);
CREATE TABLE told (
	job TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (job), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "told" VALUES('j1',2.0,'{"job":"j1","at":2.0,"drawn_low_seconds":60.0,"drawn_high_seconds":600.0,"low_seconds":50.5,"high_seconds":720.25,"waited_seconds":null}',3395662233);
INSERT INTO "told" VALUES('j2',2.0,'{"job":"j2","at":2.0,"drawn_low_seconds":60.0,"drawn_high_seconds":600.0,"low_seconds":50.5,"high_seconds":720.25,"waited_seconds":61.5}',274676156);
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
INSERT INTO "usage" VALUES('team','ann','{"queue":"team","user":"ann","at":11.5,"gpu_seconds":0.1,"cpu_seconds":0.0,"memory_gib_seconds":0.0,"total_gpu_seconds":0.0}',1196701021);
CREATE TABLE users (
	name TEXT NOT NULL, 
	record TEXT NOT NULL, 
	crc INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "users" VALUES('admin','{"name":"admin","role":"admin","created_at":5.0,"disabled":false,"identity":null,"jobs_after":3,"limits":[]}',1668169966);
INSERT INTO "users" VALUES('vera','{"name":"vera","role":"viewer","created_at":5.0,"disabled":true,"identity":null,"jobs_after":3,"limits":[]}',2765318028);
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
INSERT INTO "wishes" VALUES(1,'ann',1.0,'first','submission','{"folds":[{"spec":{"name":"first","run":"python train.py","nodes":2,"resources":{"gpu_millis":8000,"gpu_type":"h100","cpu_millis":0,"memory_bytes":256000000000},"any_of":[],"place":{"constraints":[],"topology":{"mode":"prefer","within":"rack"},"exclusive":false,"apart_from":[]},"queue":"default","priority":0,"preemptible":false,"begin":null,"start_by":null,"max_duration_seconds":null,"warn":{"signal":null,"before_seconds":null},"env":[["A","b"],["UNICODE","né ☃"]],"secrets":[],"token":"own","workdir":null,"setup":null,"per":"node","checkpoint":{"path":"./ckpt","interval_seconds":null,"keep":3,"source":"","origin":null},"retry":{"infra":20,"user":0},"disconnect":null,"self_stop_seconds":null,"grace_seconds":30.0,"elastic":null,"after":[],"array_index":null,"array_limit":null,"array_place":0,"image":null,"replica":null,"ray":false,"content_number":null},"indices":[]}],"key":"first","held":false}',2657127788);
INSERT INTO "wishes" VALUES(3,'ann',3.0,NULL,'set_node','{"node":"n1","to":"cordon"}',3934665322);
CREATE UNIQUE INDEX wishes_key ON wishes ("by", "key") WHERE key IS NOT NULL;
CREATE INDEX jobs_name ON jobs (name, submitted, place, id);
CREATE INDEX jobs_unfinished ON jobs (submitted, place, id) WHERE final = 0;
CREATE INDEX jobs_age ON jobs (submitted, place, id);
CREATE INDEX specs_owner ON specs (owner, bytes);
CREATE INDEX uploads_owner ON uploads (owner, bytes);
CREATE INDEX events_job ON events (job, number) WHERE job IS NOT NULL;
CREATE INDEX account_days_day ON account_days (day);
CREATE UNIQUE INDEX services_open ON services (name) WHERE open = 1;
CREATE INDEX files_owner ON files (owner, bytes);
CREATE INDEX batches_owner ON batches (owner, created_at);
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
