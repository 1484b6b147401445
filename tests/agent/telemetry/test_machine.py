"""The machine's own sensors, read below a root that the tests write."""

from pathlib import Path

from corral.agent.telemetry.machine import MachineSensors, disk
from corral.agent.telemetry.network_ports import ports
from corral.domain.telemetry import PortSample


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_cpu_is_the_share_since_the_last_look(tmp_path: Path) -> None:
    machine = MachineSensors(tmp_path)
    write(tmp_path, {"proc/stat": "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1\n"})
    assert machine.cpu.read() is None
    write(tmp_path, {"proc/stat": "cpu  130 0 120 720 130 0 0 0 0 0\n"})
    assert machine.cpu.read() == 0.5
    write(tmp_path, {"proc/stat": "nonsense\n"})
    assert machine.cpu.read() is None


def test_memory_that_could_be_given_away_is_not_used(tmp_path: Path) -> None:
    assert MachineSensors(tmp_path).memory() == (None, None)
    text = "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 400 kB\n"
    write(tmp_path, {"proc/meminfo": text})
    assert MachineSensors(tmp_path).memory() == (600 * 1024, 1000 * 1024)


def test_pressure_is_the_share_in_which_some_task_waited(tmp_path: Path) -> None:
    assert MachineSensors(tmp_path).pressure("io") is None
    text = "some avg10=12.50 avg60=1 avg300=1 total=1\nfull avg10=99.0 avg60=1 avg300=1 total=1\n"
    write(tmp_path, {"proc/pressure/io": text})
    assert MachineSensors(tmp_path).pressure("io") == 0.125


def test_a_disk_says_what_is_free(tmp_path: Path) -> None:
    found = disk(str(tmp_path))
    assert 0 < found.free_bytes < found.total_bytes
    assert not found.read_only


def test_only_ports_with_hardware_are_told(tmp_path: Path) -> None:
    net, rdma = "sys/class/net/", "sys/class/infiniband/mlx5_0/ports/1/"
    write(
        tmp_path,
        {
            net + "docker0/type": "1",
            net + "eth0/type": "1",
            net + "eth0/device/vendor": "x",
            net + "eth0/operstate": "up\n",
            net + "eth0/speed": "25000\n",
            net + "eth0/carrier_down_count": "3",
            net + "eth0/statistics/rx_bytes": "10",
            net + "eth0/statistics/tx_bytes": "20",
            net + "eth0/statistics/rx_errors": "1",
            net + "eth0/statistics/tx_errors": "2",
            net + "ib0/type": "32",
            net + "ib0/device/vendor": "x",
            rdma + "link_layer": "InfiniBand\n",
            rdma + "state": "4: ACTIVE\n",
            rdma + "rate": "400 Gb/sec (4X NDR)\n",
            rdma + "counters/port_rcv_data": "5",
            rdma + "counters/port_xmit_data": "6",
            rdma + "counters/symbol_error": "7",
            rdma + "counters/link_downed": "2",
        },
    )
    assert ports(tmp_path) == (
        PortSample(
            name="eth0",
            kind="ethernet",
            up=True,
            bits_per_second=25e9,
            received_bytes=10,
            sent_bytes=20,
            errors=3,
            downs=3,
        ),
        PortSample(
            name="mlx5_0/1",
            kind="infiniband",
            up=True,
            bits_per_second=400e9,
            received_bytes=20,
            sent_bytes=24,
            errors=7,
            downs=2,
        ),
    )
    write(tmp_path, {rdma + "state": "1: DOWN\n", net + "eth0/operstate": "down\n"})
    assert [port.up for port in ports(tmp_path)] == [False, False]
