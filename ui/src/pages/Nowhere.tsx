import { Link } from "@tanstack/react-router";
import { Empty, Head } from "../parts/basic";

export function Nowhere() {
  return (
    <>
      <Head title="There is no such page" />
      <Empty>
        Go to the <Link to="/">overview</Link>.
      </Empty>
    </>
  );
}
